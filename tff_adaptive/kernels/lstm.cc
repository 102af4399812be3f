// The recurrence of an LSTM and its gradient as two TensorFlow operations for a CPU, float32.
//
// Batches of a few rows only read the recurrent weights R, so R is packed once a call into blocks
// that the innermost loop reads in sequence, all rows at once, and the gates are computed while
// they are in the cache. An operation uses the thread that it is called on: the graph engine has
// several clients side by side. Only TensorFlow's C interface is used.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>
#include <vector>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"

namespace {

#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
constexpr int kVectors = 4;  // In a block of R's columns.
constexpr int kBlock = kLanes * kVectors;
constexpr int kRows = 4;  // That share what is read of R.

typedef float Vec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

Vec Load(const float* from, int64_t count) {
  Vec v{};
  if (count >= kLanes) return *reinterpret_cast<const Vec*>(from);
  std::memcpy(&v, from, count * sizeof(float));
  return v;
}

void Store(float* to, Vec v, int64_t count) {
  if (count >= kLanes) {
    *reinterpret_cast<Vec*>(to) = v;
  } else {
    std::memcpy(to, &v, count * sizeof(float));
  }
}

// exp(x) for x in [-87, 88], and at these bounds outside: x = n log 2 + r, and a polynomial of r
// (the coefficients of Cephes' expf). NaN stays NaN.
Vec Exp(const Vec given) {
  const Vec shift = Vec{} + 12582912.f;  // 1.5 2^23: a sum with it is rounded to a whole number.
  Vec x = given > 88.f ? Vec{} + 88.f : given;
  x = x < -87.f ? Vec{} - 87.f : x;
  const Vec shifted = x * 1.44269504088896341f + shift;
  const Vec n = shifted - shift;
  const Vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  const Vec result = (Vec)((Bits)p + ((Bits)shifted << 23));  // p 2^n
  return given == given ? result : given;
}

Vec Sigmoid(Vec x) { return 1.f / (1.f + Exp(-x)); }

// A polynomial (Cephes' tanhf) where the quotient would lose digits.
Vec Tanh(Vec x) {
  const Vec y = x * x;
  Vec p = y * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * y - 5.37397155531e-2f;
  p = p * y + 1.33314422036e-1f;
  p = p * y - 3.33332819422e-1f;
  const Vec near_zero = p * y * x + x;
  const Vec far = 1.f - 2.f / (Exp(x + x) + 1.f);
  return y < 0.390625f ? near_zero : far;
}

// A matrix [depth, width] in blocks of columns, each [depth, kBlock]; zeros fill the last one.
class Packed {
 public:
  // `from` is [depth, width], or [width, depth] if it is transposed.
  void Fill(const float* from, int64_t depth, int64_t width, bool is_transposed) {
    depth_ = depth;
    width_ = width;
    const int64_t blocks = (width + kBlock - 1) / kBlock;
    memory_.resize(blocks * depth * kBlock + kLanes);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    const uintptr_t line = kLanes * sizeof(float);
    data_ = memory_.data() + ((address + line - 1) / line * line - address) / sizeof(float);
    for (int64_t j = 0; j < blocks; ++j) {
      const int64_t columns = std::min<int64_t>(kBlock, width - j * kBlock);
      float* to = data_ + j * depth * kBlock;
      if (columns < kBlock) std::fill(to, to + depth * kBlock, 0.f);
      if (is_transposed) {
        for (int64_t first = 0; first < depth; first += kLanes) {
          const int64_t last = std::min<int64_t>(first + kLanes, depth);
          for (int64_t c = 0; c < columns; ++c) {
            const float* row = from + (j * kBlock + c) * depth;
            for (int64_t i = first; i < last; ++i) to[i * kBlock + c] = row[i];
          }
        }
      } else {
        for (int64_t i = 0; i < depth; ++i) {
          std::copy_n(from + i * width + j * kBlock, columns, to + i * kBlock);
        }
      }
    }
  }

  // out [rows, width] (+)= a [rows, depth] times this.
  void Multiply(const float* a, int64_t rows, float* out, bool is_added) const {
    for (; rows >= kRows; rows -= kRows, a += kRows * depth_, out += kRows * width_) {
      MultiplyRows<kRows>(a, out, is_added);
    }
    if (rows == 3) MultiplyRows<3>(a, out, is_added);
    if (rows == 2) MultiplyRows<2>(a, out, is_added);
    if (rows == 1) MultiplyRows<1>(a, out, is_added);
  }

 private:
  template <int rows>
  void MultiplyRows(const float* a, float* out, bool is_added) const {
    for (int64_t first = 0; first < width_; first += kBlock) {
      const float* weights = data_ + first * depth_;
      Vec sums[rows][kVectors] = {};
      for (int64_t i = 0; i < depth_; ++i, weights += kBlock) {
        Vec w[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          w[v] = *reinterpret_cast<const Vec*>(weights + v * kLanes);
        }
        for (int r = 0; r < rows; ++r) {
          const float x = a[r * depth_ + i];
          for (int v = 0; v < kVectors; ++v) sums[r][v] += x * w[v];
        }
      }
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          const int64_t column = first + v * kLanes, count = width_ - column;
          if (count <= 0) break;
          float* to = out + r * width_ + column;
          Store(to, is_added ? Load(to, count) + sums[r][v] : sums[r][v], count);
        }
      }
    }
  }

  std::vector<float> memory_;
  float* data_ = nullptr;
  int64_t depth_ = 0, width_ = 0;
};

thread_local Packed packed;

struct Sizes {
  int64_t groups, steps, batch, units;
};

// From z's share of the inputs, in `gates`, to the gates i, f, g, o in their place, and c and h.
void Forward(const Sizes& n, const float* r, float* gates, float* c, float* h) {
  const int64_t row = 4 * n.units;
  packed.Fill(r, n.units, row, false);
  for (int64_t t = 0; t < n.steps; ++t, gates += n.batch * row) {
    if (t > 0) packed.Multiply(h + (t - 1) * n.batch * n.units, n.batch, gates, true);
    for (int64_t b = 0; b < n.batch; ++b) {
      const int64_t at = (t * n.batch + b) * n.units;
      for (int64_t u = 0; u < n.units; u += kLanes) {
        const int64_t left = n.units - u;
        float* z = gates + b * row + u;
        const Vec i = Sigmoid(Load(z, left)), f = Sigmoid(Load(z + n.units, left));
        const Vec g = Tanh(Load(z + 2 * n.units, left)), o = Sigmoid(Load(z + 3 * n.units, left));
        const Vec before = t > 0 ? Load(c + at - n.batch * n.units + u, left) : Vec{};
        const Vec cell = f * before + i * g;
        Store(z, i, left);
        Store(z + n.units, f, left);
        Store(z + 2 * n.units, g, left);
        Store(z + 3 * n.units, o, left);
        Store(c + at + u, cell, left);
        Store(h + at + u, o * Tanh(cell), left);
      }
    }
  }
}

// From the gradient by h to that by z.
void Backward(const Sizes& n, const float* dh_given, const float* r, const float* gates,
              const float* c, float* dz) {
  const int64_t row = 4 * n.units;
  packed.Fill(r, row, n.units, true);
  // By h and c of the step before, of all that comes later.
  std::vector<float> dh(n.batch * n.units), dc(n.batch * n.units);
  for (int64_t t = n.steps - 1; t >= 0; --t) {
    for (int64_t b = 0; b < n.batch; ++b) {
      const int64_t at = (t * n.batch + b) * n.units;
      for (int64_t u = 0; u < n.units; u += kLanes) {
        const int64_t left = n.units - u, carried = b * n.units + u;
        const float* gate = gates + 4 * at + u;
        const Vec i = Load(gate, left), f = Load(gate + n.units, left);
        const Vec g = Load(gate + 2 * n.units, left), o = Load(gate + 3 * n.units, left);
        const Vec before = t > 0 ? Load(c + at - n.batch * n.units + u, left) : Vec{};
        const Vec tanh_c = Tanh(Load(c + at + u, left));
        const Vec by_h = Load(dh_given + at + u, left) + Load(dh.data() + carried, left);
        const Vec by_c = Load(dc.data() + carried, left) + by_h * o * (1.f - tanh_c * tanh_c);
        float* d = dz + 4 * at + u;
        Store(d, by_c * g * i * (1.f - i), left);
        Store(d + n.units, by_c * before * f * (1.f - f), left);
        Store(d + 2 * n.units, by_c * i * (1.f - g * g), left);
        Store(d + 3 * n.units, by_h * tanh_c * o * (1.f - o), left);
        Store(dc.data() + carried, by_c * f, left);
      }
    }
    if (t > 0) packed.Multiply(dz + t * n.batch * row, n.batch, dh.data(), false);
  }
}

// ---- The operations ----

class Call {
 public:
  Call(void* kernel, TF_OpKernelContext* context)
      : steps_(*static_cast<int64_t*>(kernel)), context_(context), status_(TF_NewStatus()) {}
  ~Call() {
    if (TF_GetCode(status_) != TF_OK) TF_OpKernelContext_Failure(context_, status_);
    for (TF_Tensor* tensor : tensors_) TF_DeleteTensor(tensor);
    TF_DeleteStatus(status_);
  }
  bool IsFine() const { return TF_GetCode(status_) == TF_OK; }

  const float* Input(int index, std::vector<int64_t>* shape) {
    TF_Tensor* tensor = nullptr;
    if (!IsFine()) return nullptr;
    TF_GetInput(context_, index, &tensor, status_);
    if (!IsFine()) return nullptr;
    tensors_.push_back(tensor);
    shape->clear();
    for (int i = 0; i < TF_NumDims(tensor); ++i) shape->push_back(TF_Dim(tensor, i));
    return static_cast<const float*>(TF_TensorData(tensor));
  }

  // An output with the shape of a [..., rows, units] tensor, with `columns` columns.
  float* Output(int index, std::vector<int64_t> shape, int64_t columns) {
    if (!IsFine()) return nullptr;
    shape.back() = columns;
    int64_t size = 1;
    for (int64_t n : shape) size *= n;
    TF_Tensor* tensor = TF_AllocateOutput(context_, index, TF_FLOAT, shape.data(), shape.size(),
                                          size * sizeof(float), status_);
    if (!IsFine()) return nullptr;
    tensors_.push_back(tensor);
    return static_cast<float*>(TF_TensorData(tensor));
  }

  // Of rows [..., T B, width] with R [..., units, 4 units].
  Sizes Check(const std::vector<int64_t>& rows, const std::vector<int64_t>& r, int64_t multiple) {
    Sizes n{1, steps_, 0, 0};
    if (!IsFine()) return n;
    const size_t rank = rows.size();
    bool fits = rank >= 2 && r.size() == rank && r[rank - 1] == 4 * r[rank - 2];
    for (size_t i = 0; fits && i + 2 < rank; ++i) {
      fits = rows[i] == r[i];
      n.groups *= r[i];
    }
    fits = fits && steps_ > 0 && rows[rank - 2] % steps_ == 0 &&
           rows[rank - 1] == multiple * r[rank - 2];
    if (!fits) {
      TF_SetStatus(status_, TF_INVALID_ARGUMENT, "The shapes of an LSTM's tensors do not fit.");
      return n;
    }
    n.batch = rows[rank - 2] / steps_;
    n.units = r[rank - 2];
    return n;
  }

  // What TensorFlow's C interface must not see: an exception. Few bytes are asked for but by tensors.
  template <typename Work>
  void Try(Work work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      TF_SetStatus(status_, TF_RESOURCE_EXHAUSTED, "There is no memory for an LSTM's weights.");
    }
  }

  void Require(bool holds) {
    if (IsFine() && !holds) {
      TF_SetStatus(status_, TF_INVALID_ARGUMENT, "The shapes of an LSTM's tensors do not fit.");
    }
  }

 private:
  const int64_t steps_;
  TF_OpKernelContext* context_;
  TF_Status* status_;
  std::vector<TF_Tensor*> tensors_;
};

void ComputeForward(void* kernel, TF_OpKernelContext* context) {
  Call call(kernel, context);
  std::vector<int64_t> z_shape, r_shape;
  const float* z = call.Input(0, &z_shape);
  const float* r = call.Input(1, &r_shape);
  const Sizes n = call.Check(z_shape, r_shape, 4);
  float* h = call.Output(0, z_shape, n.units);
  float* gates = call.Output(1, z_shape, 4 * n.units);
  float* c = call.Output(2, z_shape, n.units);
  if (!call.IsFine()) return;
  const int64_t size = n.steps * n.batch * n.units;
  std::copy_n(z, 4 * size * n.groups, gates);
  call.Try([&] {
    for (int64_t k = 0; k < n.groups; ++k) {
      Forward(n, r + k * 4 * n.units * n.units, gates + k * 4 * size, c + k * size, h + k * size);
    }
  });
}

void ComputeBackward(void* kernel, TF_OpKernelContext* context) {
  Call call(kernel, context);
  std::vector<int64_t> shape, r_shape, gates_shape, c_shape;
  const float* dh = call.Input(0, &shape);
  const float* r = call.Input(1, &r_shape);
  const float* gates = call.Input(2, &gates_shape);
  const float* c = call.Input(3, &c_shape);
  const Sizes n = call.Check(shape, r_shape, 1);
  call.Require(c_shape == shape);
  call.Check(gates_shape, r_shape, 4);
  call.Require(gates_shape.size() == shape.size() &&
               std::equal(shape.begin(), shape.end() - 1, gates_shape.begin()));
  float* dz = call.Output(0, shape, 4 * n.units);
  if (!call.IsFine()) return;
  const int64_t size = n.steps * n.batch * n.units;
  call.Try([&] {
    for (int64_t k = 0; k < n.groups; ++k) {
      Backward(n, dh + k * size, r + k * 4 * n.units * n.units, gates + k * 4 * size, c + k * size,
               dz + k * 4 * size);
    }
  });
}

void* Create(TF_OpKernelConstruction* construction) {
  TF_Status* status = TF_NewStatus();
  auto* steps = new int64_t(0);
  TF_OpKernelConstruction_GetAttrInt64(construction, "steps", steps, status);
  if (TF_GetCode(status) != TF_OK) TF_OpKernelConstruction_Failure(construction, status);
  TF_DeleteStatus(status);
  return steps;
}

void Delete(void* kernel) { delete static_cast<int64_t*>(kernel); }

void UnknownShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void Register(const char* name, std::initializer_list<const char*> inputs,
              std::initializer_list<const char*> outputs,
              void (*compute)(void*, TF_OpKernelContext*)) {
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(name);
  for (const char* input : inputs) TF_OpDefinitionBuilderAddInput(op, input);
  for (const char* output : outputs) TF_OpDefinitionBuilderAddOutput(op, output);
  TF_OpDefinitionBuilderAddAttr(op, "steps: int >= 1");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, UnknownShapes);
  TF_RegisterOpDefinition(op, status);
  if (TF_GetCode(status) == TF_OK) {
    TF_KernelBuilder* kernel = TF_NewKernelBuilder(name, "CPU", Create, compute, Delete);
    TF_RegisterKernelBuilder(name, kernel, status);
  }
  if (TF_GetCode(status) != TF_OK) std::fprintf(stderr, "%s: %s\n", name, TF_Message(status));
  TF_DeleteStatus(status);
}

__attribute__((constructor)) void RegisterBoth() {
  Register("TffAdaptiveLstm", {"z: float", "r: float"}, {"h: float", "gates: float", "c: float"},
           ComputeForward);
  Register("TffAdaptiveLstmGrad", {"dh: float", "r: float", "gates: float", "c: float"},
           {"dz: float"}, ComputeBackward);
}

}  // namespace
