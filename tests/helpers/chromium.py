"""A headless Chromium that opens pages, over the pipe of its DevTools protocol."""

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess

_FLAGS = (
  *('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'),
  *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
  *('--disable-dev-shm-usage', '--hide-scrollbars', '--remote-debugging-pipe'),
)


@functools.cache
def find():
  """The path of a Chromium or Chrome that starts, or None: one may be installed by half."""
  names = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')
  return next(filter(_starts, filter(None, map(shutil.which, names))), None)


def _starts(path):
  try:
    asked = subprocess.run([path, '--version'], stdin=subprocess.DEVNULL, capture_output=True)
  except OSError:
    return False
  return asked.returncode == 0


class Browser:
  """One tab.

  Attributes:
    requests: The addresses of all that the pages asked for.
  """

  def __init__(self, to, answers):
    self._to, self._answers, self._last, self._session = to, answers, 0, None
    self.requests, self._loaded = [], False
    target = self.call('Target.createTarget', url='about:blank')['targetId']
    attached = self.call('Target.attachToTarget', targetId=target, flatten=True)
    self._session = attached['sessionId']
    for domain in ('Page', 'Network', 'Runtime'):
      self.call(f'{domain}.enable')

  def call(self, method, **parameters):
    """Calls a method of the protocol; notes requests meanwhile."""
    self._last += 1
    message = {'id': self._last, 'method': method, 'params': parameters}
    if self._session is not None:
      message['sessionId'] = self._session
    self._to.write(json.dumps(message).encode() + b'\0')
    self._to.flush()
    while True:
      answer = self._read()
      if answer.get('id') == self._last:
        assert 'error' not in answer, answer
        return answer['result']

  def open(self, path, width=1200, height=900):
    """Opens a file and waits until it is loaded."""
    size = {'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': False}
    self.call('Emulation.setDeviceMetricsOverride', **size)
    self._loaded = False
    self.call('Page.navigate', url=f'file://{os.path.abspath(path)}')
    while not self._loaded:
      self._read()

  def evaluate(self, expression):
    """The value of a JavaScript expression in the page."""
    found = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
    assert 'exceptionDetails' not in found, found
    return found['result']['value']

  def screenshot(self, path, x, y, width, height):
    """Writes what a rectangle of the page shows as a PNG file."""
    clip = {'x': x, 'y': y, 'width': width, 'height': height, 'scale': 1}
    shot = self.call('Page.captureScreenshot', clip=clip, captureBeyondViewport=True)
    with open(path, 'wb') as file:
      file.write(base64.b64decode(shot['data']))

  def _read(self):
    octets = bytearray()
    while not octets.endswith(b'\0'):
      octet = self._answers.read(1)
      assert octet, 'the browser has ended'
      octets += octet
    message = json.loads(octets[:-1])
    if message.get('method') == 'Network.requestWillBeSent':
      self.requests.append(message['params']['request']['url'])
    self._loaded |= message.get('method') == 'Page.loadEventFired'
    return message


@contextlib.contextmanager
def browser(profile):
  """A browser with an empty profile in a folder; it ends with the context."""
  (its_input, to), (answers, its_output) = os.pipe(), os.pipe()

  def place():  # The protocol's descriptors are 3 and 4; first out of the way of both.
    high = [os.dup2(its_input, 100, inheritable=False), os.dup2(its_output, 101, inheritable=False)]
    for i, end in enumerate(high):
      os.dup2(end, 3 + i)

  process = subprocess.Popen(
    [find(), *_FLAGS, f'--user-data-dir={profile}', 'about:blank'],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    close_fds=False,  # Those of Python's are closed all the same.
    preexec_fn=place,
    start_new_session=True,
  )
  os.close(its_input)
  os.close(its_output)
  with open(to, 'wb') as writing, open(answers, 'rb') as reading:
    try:
      yield Browser(writing, reading)
    finally:
      process.kill()
      process.wait()
