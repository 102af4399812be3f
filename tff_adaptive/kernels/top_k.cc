// The largest numbers of several vectors together, as a TensorFlow operation for a CPU, float32.
//
// A sample gives a bound that the k-th largest magnitude most likely reaches. One pass collects the
// numbers from the bound on, of which the k-th is found; a second writes the k numbers into zeros.
// The operation uses the thread that it is called on: the graph engine has several clients side by
// side. Only TensorFlow's C interface is used.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"

namespace {

constexpr int64_t kSample = 1 << 14;  // Numbers in a sample, about.
constexpr uint32_t kBins = 1 << 11;
constexpr uint32_t kMagnitude = 0x7fffffff;  // Magnitudes have the order of these bits; NaN is last.

struct Vector {
  const float* values;
  int64_t size;
};

// The numbers from a bound on: bits of magnitudes, and the positions in their vectors, in order.
struct Candidates {
  std::unique_ptr<uint32_t[]> bits;
  std::unique_ptr<int32_t[]> positions;
  std::vector<int64_t> ends;  // Of each vector.
  int64_t count = 0;
};

uint32_t Magnitude(const float* value) {
  uint32_t bits;
  std::memcpy(&bits, value, sizeof(bits));
  return bits & kMagnitude;
}

// A histogram of about the first eleven bits in which numbers differ leaves few to be ordered.
uint32_t KthLargest(const uint32_t* bits, int64_t count, int64_t k) {
  const auto range = std::minmax_element(bits, bits + count);
  const uint32_t least = *range.first;
  int shift = 0;
  while (((*range.second - least) >> shift) >= kBins) ++shift;
  std::vector<int64_t> counts(kBins);
  for (int64_t i = 0; i < count; ++i) ++counts[(bits[i] - least) >> shift];
  uint32_t bin = kBins - 1;
  for (; counts[bin] < k; --bin) k -= counts[bin];
  std::vector<uint32_t> of_bin;
  of_bin.reserve(counts[bin]);
  for (int64_t i = 0; i < count; ++i) {
    if ((bits[i] - least) >> shift == bin) of_bin.push_back(bits[i]);
  }
  std::nth_element(of_bin.begin(), of_bin.begin() + (k - 1), of_bin.end(), std::greater<>());
  return of_bin[k - 1];
}

// A bound that more than k numbers are expected to reach; 0, which all reach, for few numbers.
uint32_t Bound(const std::vector<Vector>& vectors, int64_t total, int64_t k) {
  const int64_t stride = total / kSample;
  if (stride < 8) return 0;
  std::vector<uint32_t> sample;
  for (const Vector& vector : vectors) {
    for (int64_t i = 0; i < vector.size; i += stride) {
      sample.push_back(Magnitude(vector.values + i));
    }
  }
  const double expected = static_cast<double>(k) / total * sample.size();
  // Four standard deviations more than the k numbers are expected to have in the sample.
  const int64_t rank = static_cast<int64_t>(expected + 4 * std::sqrt(expected)) + 2;
  if (rank > static_cast<int64_t>(sample.size())) return 0;
  return KthLargest(sample.data(), sample.size(), rank);
}

#ifdef __AVX2__
// For each mask of eight numbers the order that puts those of the mask first.
struct Orders {
  alignas(32) int32_t of_mask[256][8];
  Orders() {
    for (int mask = 0; mask < 256; ++mask) {
      int next = 0;
      for (int lane = 0; lane < 8; ++lane) {
        if (mask >> lane & 1) of_mask[mask][next++] = lane;
      }
      for (; next < 8; ++next) of_mask[mask][next] = 0;
    }
  }
};
const Orders kOrders;
#endif

// Collects without branches, which would be taken at random.
void Collect(const Vector& vector, uint32_t bound, Candidates* found) {
  int64_t i = 0;
  uint32_t* bits_to = found->bits.get();
  int32_t* positions_to = found->positions.get();
  int64_t count = found->count;
#ifdef __AVX2__
  const __m256i magnitude = _mm256_set1_epi32(kMagnitude);
  // Signed comparison: magnitudes are at least 0, so the bound less 1 is at least -1.
  const __m256i below = _mm256_set1_epi32(static_cast<int32_t>(bound) - 1);
  const __m256i eight = _mm256_set1_epi32(8);
  __m256i positions = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (; i + 8 <= vector.size; i += 8) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vector.values + i));
    const __m256i bits = _mm256_and_si256(raw, magnitude);
    const __m256i is_large = _mm256_cmpgt_epi32(bits, below);
    const unsigned mask = _mm256_movemask_ps(_mm256_castsi256_ps(is_large));
    const __m256i order =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kOrders.of_mask[mask]));
    // Eight are written, and those after the ones of the mask overwritten by the next.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bits_to + count),
                        _mm256_permutevar8x32_epi32(bits, order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions_to + count),
                        _mm256_permutevar8x32_epi32(positions, order));
    count += __builtin_popcount(mask);
    positions = _mm256_add_epi32(positions, eight);
  }
#endif
  for (; i < vector.size; ++i) {
    bits_to[count] = Magnitude(vector.values + i);
    positions_to[count] = static_cast<int32_t>(i);
    count += bits_to[count] >= bound;
  }
  found->count = count;
  found->ends.push_back(count);
}

// Writes the k numbers of largest magnitude to `kept`, and zeros. Of equal ones the first count.
void KeepLargest(const std::vector<Vector>& vectors, const std::vector<float*>& kept, int64_t k) {
  int64_t total = 0;
  for (const Vector& vector : vectors) total += vector.size;
  Candidates found;
  // Memory that is not written to takes no place. Vectors write some numbers more than they collect.
  found.bits.reset(new uint32_t[total + 8]);
  found.positions.reset(new int32_t[total + 8]);
  uint32_t bound = Bound(vectors, total, k);
  for (const Vector& vector : vectors) Collect(vector, bound, &found);
  if (found.count < k) {  // The sample was unlike the vectors.
    found.count = 0;
    found.ends.clear();
    for (const Vector& vector : vectors) Collect(vector, 0, &found);
  }
  const uint32_t kth = KthLargest(found.bits.get(), found.count, k);
  int64_t num_equal_wanted = k;
  for (int64_t i = 0; i < found.count; ++i) num_equal_wanted -= found.bits[i] > kth;
  int64_t i = 0;
  for (size_t v = 0; v < vectors.size(); ++v) {
    std::memset(kept[v], 0, vectors[v].size * sizeof(float));
    for (; i < found.ends[v]; ++i) {
      if (found.bits[i] < kth) continue;
      if (found.bits[i] == kth && num_equal_wanted-- <= 0) continue;
      kept[v][found.positions[i]] = vectors[v].values[found.positions[i]];
    }
  }
}

// ---- The operation ----

void Compute(void* kernel, TF_OpKernelContext* context) {
  const int64_t k = *static_cast<int64_t*>(kernel);
  TF_Status* status = TF_NewStatus();
  std::vector<TF_Tensor*> tensors;
  std::vector<Vector> vectors;
  std::vector<float*> kept;
  int64_t total = 0;
  bool is_small = true;
  for (int v = 0; v < TF_NumInputs(context) && TF_GetCode(status) == TF_OK; ++v) {
    TF_Tensor* input = nullptr;
    TF_GetInput(context, v, &input, status);
    if (TF_GetCode(status) != TF_OK) break;
    tensors.push_back(input);
    std::vector<int64_t> shape;
    for (int i = 0; i < TF_NumDims(input); ++i) shape.push_back(TF_Dim(input, i));
    const int64_t size = TF_TensorElementCount(input);
    is_small &= size <= INT32_MAX;
    total += size;
    vectors.push_back({static_cast<const float*>(TF_TensorData(input)), size});
    TF_Tensor* output = TF_AllocateOutput(context, v, TF_FLOAT, shape.data(), shape.size(),
                                          size * sizeof(float), status);
    if (TF_GetCode(status) != TF_OK) break;
    tensors.push_back(output);
    kept.push_back(static_cast<float*>(TF_TensorData(output)));
  }
  if (TF_GetCode(status) == TF_OK) {
    if (k < 1 || k > total || !is_small) {
      TF_SetStatus(status, TF_INVALID_ARGUMENT, "k must be from 1 to the number of numbers.");
    } else {
      try {
        KeepLargest(vectors, kept, k);
      } catch (const std::bad_alloc&) {
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "There is no memory to find the largest.");
      }
    }
  }
  if (TF_GetCode(status) != TF_OK) TF_OpKernelContext_Failure(context, status);
  for (TF_Tensor* tensor : tensors) TF_DeleteTensor(tensor);
  TF_DeleteStatus(status);
}

void* Create(TF_OpKernelConstruction* construction) {
  TF_Status* status = TF_NewStatus();
  auto* k = new int64_t(0);
  TF_OpKernelConstruction_GetAttrInt64(construction, "k", k, status);
  if (TF_GetCode(status) != TF_OK) TF_OpKernelConstruction_Failure(construction, status);
  TF_DeleteStatus(status);
  return k;
}

void Delete(void* kernel) { delete static_cast<int64_t*>(kernel); }

void UnknownShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

__attribute__((constructor)) void RegisterKeepLargest() {
  const char* name = "TffAdaptiveKeepLargest";
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(name);
  TF_OpDefinitionBuilderAddInput(op, "values: N * float");
  // As in a call of a function, which the operation replaces in serialized graphs.
  TF_OpDefinitionBuilderAddOutput(op, "output: N * float");
  TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "k: int >= 1");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, UnknownShapes);
  TF_RegisterOpDefinition(op, status);
  if (TF_GetCode(status) == TF_OK) {
    TF_KernelBuilder* kernel = TF_NewKernelBuilder(name, "CPU", Create, Compute, Delete);
    TF_RegisterKernelBuilder(name, kernel, status);
  }
  if (TF_GetCode(status) != TF_OK) std::fprintf(stderr, "%s: %s\n", name, TF_Message(status));
  TF_DeleteStatus(status);
}

}  // namespace
