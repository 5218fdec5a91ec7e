"""Printed stack traces to :class:`Traceback` objects, the original exception first.

Reads what CPython's ``traceback`` and ``faulthandler`` print, and what rich, IPython, loguru, Ray, joblib,
multiprocessing, torch's DataLoader, torchelastic, ``torch.multiprocessing.spawn`` and TensorFlow make of it.
Every line is looked at a bounded number of times; nothing here raises on garbage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from check_failed_run.scanning.facts import ExceptionInfo, Frame, LogLine, Traceback

MAX_FRAMES = 200  # of one exception; the outermost 20 and the innermost rest are kept
MAX_TRACEBACKS = 400
MAX_CHAIN = 40  # exceptions of one traceback
_MESSAGE_LINES = 6  # continuation lines that go into a message
_MESSAGE_CHARS = 4000
_DEPTH = 6  # tracebacks inside messages inside messages
_FOREIGN = 30  # lines of something else that may stand between two frames

_HEADER = re.compile(r"Traceback \(most recent call last\)|Traceback \(innermost last\)")
_FRAME = re.compile(r'[\s>|]*File "([^"\n]{1,1000})", line (\d{1,9})(?:, in (.{1,300}))?')
_CARETS = re.compile(r"[\s~^]+(?:\.\.\.)?(?:<\d+ lines>\.\.\.)?$")
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")
_RAY_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_RAY_HEAD = re.compile(r"\s*ray::[^\s(]{1,200}.{0,300}\(?pid=")
_CHAIN = re.compile(
    r"The above exception was the (direct cause) of the following exception:|During handling of the above exception, another exception occurred:"
)
_TYPE = r"[A-Za-z_][\w.]{0,200}(?:\([\w.]{1,100}\))?(?:\.<locals>\.\w{1,100})?"
_EXCEPTION = re.compile(rf"\s*({_TYPE})(?::(?:\s(.*))?|(?:\s*))$", re.S)
_SURE_TYPE = re.compile(
    r"(?:^|\.)(?:\w*(?:Error|Exception|Warning|Interrupt|Exit|Failure|Fault|Timeout|Iteration|Traceback|Group|StackTrace|Abort|Cancelled|Refused|Expired)"
    r"(?:\([\w.]+\))?|error|timeout|gaierror|herror|Empty|Full|[A-Z]\w*Err)$"
)
_NOT_TYPE = re.compile(
    r"(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL|TRACE|NOTE|Note|Epoch|epoch|Step|step|Iter|iter|Loss|loss|Hint|wandb|srun|slurmstepd|"
    r"Killed|Aborted|Terminated|Done|Error|Train|Training|Validation|Eval|Time|Date)$"
)
_INTRO = re.compile(
    r"Original Traceback|-- Process \d+ terminated with the following error|^\s*(?:\"\"\"|''')|Error Snippet|ray::|RemoteTraceback|"
    r"traceback\s*: Traceback|Original exception|Remote traceback|The original traceback|with the following (?:error|traceback|exception)",
)
_WRAPPER = re.compile(
    r"Caught \w{1,100} in |RayTaskError|ray::|Graph execution error|RemoteTraceback|ProcessRaisedException|ChildFailedError|WorkerGroupError|"
    r"TrainingFailedError|TuneError|PapermillExecutionError|RemoteError|function_node"
)
_TENSORFLOW = re.compile(r"tensorflow\.|errors_impl|Graph execution error|function_node")
_DEFINED_AT = re.compile(r"defined at \(most recent call last\)|Traceback of forward call that caused the error|Original stack trace for ")
_CPP = re.compile(r"Exception raised from .{0,2000}\(most recent call first\)|frame #\d+: |C\+\+ CapturedTraceback|#\d{1,3} \S+ from \S+:\d+")
_AFTER_BLANK = re.compile(
    r"\s+\S|Detected at node|\[\[|\(\d\) |<stack traces|-- Process \d|Original stack trace|Function call stack|Stack trace|={10,}|"
    r"\w+Error: .{0,500}$|Operation |(?:Sub)?[Cc]onfig|To debug|The size of tensor"
)
_OTHER = re.compile(
    r"\s*\d{1,3}%\||.{0,80}\d%\|[ █▏▎▍▌▋▊▉#]|\d{4}-\d\d-\d\d[ T]\d\d:|[IWEF]\d{4} \d\d:|\[[IWEF]\d{3,4} |wandb: |srun: |slurmstepd|Killing subprocess|"
    r"\[\d{4}-\d\d-\d\d|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b|Exception ignored |Exception in thread |Fatal Python error: |\*\*\* |"
    r"Process \S{1,100}:$|\[rank\d+\]:|Epoch \d|epoch \d|step[ =:]|Traceback|terminate called|Restarting|Saving|Loading|"
    r"\+ |Error executing job|Set the environment variable HYDRA|libc\+\+abi|free\(\): |double free|corrupted |Command |Exited with|"
    r"(?:E|W)\d{4}|\S{1,60}: line \d+: +\d+ (?:Killed|Aborted|Segmentation)"
)
_IGNORED = re.compile(r"Exception ignored (?:in|on|while)\b")
_THREAD = re.compile(r"Exception in thread (.{1,200}?):?\s*$")
_MAIN_THREAD = re.compile(r"MainThread|_?pin_memory")
_PROCESS = re.compile(r"Process (\S{1,100}):\s*$")
_WORKER = re.compile(
    r"Caught \w{1,100} in (DataLoader worker process \d+|pin memory thread[^.]{0,60}|replica \d+ on device \d+|[^.]{1,80})\.|"
    r"(RayTaskError)|-- (Process \d+) terminated with|(RemoteTraceback|_RemoteTraceback)|(WorkerGroupError|TrainingFailedError|ChildFailedError)"
)
_ANOMALY = re.compile(r"Function '?(\w{1,100})'? returned nan values")
_ANOMALY_HEAD = re.compile(r"Error detected in (\w{1,100})\. Traceback of forward call that caused the error:")

_FATAL = re.compile(r"Fatal Python error: (.{1,500})")
_FATAL_THREAD = re.compile(r"\s*(Current thread|Thread) 0x[0-9a-fA-F]+.{0,100}\(most recent call first\):")
_FATAL_FRAME = re.compile(r'\s*File "([^"]{1,1000})", line (\d{1,9}) in (.{1,300})')

_RICH_FRAME = re.compile(r"(?:❱\s*)?(\S.{0,1000}?):(\d{1,9}) in (.{1,300}?)\s*$")
_RICH_CODE = re.compile(r"❱\s*(\d{1,9})\s*[│|]?(.*)$")

_IPY_HEADER = re.compile(r"\s*([A-Za-z_][\w.]*)\s{2,}Traceback \(most recent call last\)")
_IPY_FRAME = re.compile(
    r"\s*(?:(?:Cell )?In\s?\[(?P<cell>\d+|\s\*?)\](?:,? line (?P<cline>\d+))?(?:,? in (?P<cfunc>.{1,300}))?"
    r"|Input In \[(?P<icell>\d+)\], in (?P<ifunc>.{1,300})"
    r"|File (?P<file>[^\s\"].{0,1000}?):(?P<fline>\d{1,9})(?:, in (?P<ffunc>.{1,300}))?"
    r"|(?P<ofile><ipython-input-[^>]{1,100}>|[~/][^\s]{0,1000}\.py[c]?) in (?P<ofunc>.{1,300}))$"
)
_IPY_ARROW = re.compile(r"-{1,10}> ?(\d{1,9})(?: (.*))?$")

_LIBRARY = re.compile(
    r"site-packages|dist-packages|[/\\][Ll]ib(?:64)?[/\\]python\d|python\d[\d.]*\.zip|^<(?!ipython)|^<?frozen |[/\\]ray[/\\]_private|"
    r"[/\\](?:s?bin|Scripts)[/\\][\w.-]+$|/opt/conda/lib|conda\d?/(?:envs/[^/]+/)?lib/|/\.pyenv/versions/[^/]+/lib|[/\\]Python\d+[/\\]Lib[/\\]|"
    r"__autograph_generated_file|torchinductor_|unsloth_compiled_cache|/\.cache/bazel|\.egg[/\\]|/usr/lib/|^/pytorch/|^importlib[/\\.]|/uv/python/[^/]+/lib|nix/store",
)
# Well-known source trees that people run from a checkout: package and a part of it that is the package's own.
_CHECKOUT = re.compile(
    r"(?:^|[/\\])(?:megatron/(?:core|training|legacy|model|data|optimizer)/|nemo/(?:collections|core|lightning|utils)/|"
    r"mm(?:seg|det|det3d|cls|pretrain|pose|action|ocr|engine|cv|yolo|rotate)/(?:apis|core|datasets|models|engine|utils|runner|parallel|hooks)/|"
    r"torch/(?:nn|utils|cuda|distributed|autograd|optim|_\w+|fx|jit|serialization|multiprocessing|amp|ao|backends)(?:/|\.py)|"
    r"transformers/(?:trainer\w*|training_args\w*|modeling_\w+|hf_argparser|tokenization_\w+|configuration_\w+|generation|models|utils|integrations|pipelines)(?:/|\.py)|"
    r"accelerate/(?:state|accelerator|data_loader|launchers|optimizer|utils|commands)(?:/|\.py)|deepspeed/(?:runtime|launcher|comm|ops|utils|inference)/|"
    r"fairseq/(?:tasks|data|models|modules|optim|distributed|dataclass|criterions|logging)/|fairseq/(?:trainer|checkpoint_utils|utils)\.py|fairseq_cli/|"
    r"(?:pytorch_lightning|lightning/(?:pytorch|fabric))/|detectron2/(?:engine|config|data|modeling|checkpoint|utils|evaluation|layers|solver|structures)/|"
    r"ultralytics/(?:engine|models|nn|utils|data|cfg|hub)/|llamafactory/(?:train|hparams|data|model|extras|launcher\.py|cli\.py)|"
    r"jax/(?:_src|experimental)/|jaxlib/|tensorflow/python/|keras/src/|ray/(?:train|tune|util|data|serve|cloudpickle|rllib)/|"
    r"axolotl/(?:utils|core|cli|loaders|monkeypatch|prompters|train\.py)|torchtitan/(?:components|distributed|models|tools|train\.py)|"
    r"library/(?:train_util|\w+_train_utils|\w*model_util)\.py|datasets/(?:arrow_dataset|iterable_dataset|builder|load|table)\.py)"
)
_EMBEDDED = "Traceback (most recent call last):\\n"


def is_user_file(path: str) -> bool:
    """Whether a frame's file is the user's own: no installed package, standard library, launcher or generated code."""
    if path.startswith("<ipython-input"):
        return True
    if path.endswith((".pyx", ".pxi")) and path[:1] not in "/~":
        return False  # compiled extensions name their source relative to their own build
    return _LIBRARY.search(path) is None and _CHECKOUT.search(path) is None


def read_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """All tracebacks in consecutive cleaned lines (ranks may be interleaved), in the order of their first lines."""
    found: list[tuple[int, Traceback]] = []
    for stream in _streams(lines):
        if len(found) >= 4 * MAX_TRACEBACKS:
            break
        found += stream.read()
    found.sort(key=lambda item: item[0])
    return [traceback for _, traceback in found[:MAX_TRACEBACKS]]


def _streams(lines: Sequence[LogLine]) -> list[_Stream]:
    """Lines by (rank, source). A bare line that continues a labelled traceback goes with it."""
    streams: dict[tuple[int | None, str | None], _Stream] = {}
    bare = (None, None)
    last_key = bare
    label = ""  # a prefix that cleaning does not know, found before a header and on the line after it
    label_key = bare
    label_left = 0
    follows = False  # the lines just before are of a labelled traceback, and bare ones may continue it
    bare_open = False  # the bare stream is inside a traceback of its own
    for index, line in enumerate(lines):
        text = line.text
        key = (line.rank, line.source)
        header = _HEADER.search(text) if "Traceback (" in text else None
        if header and header.start() > 0:
            before = text[: header.start()]
            rank = line.rank
            if rank is None and (m := re.search(r"\[rank(\d{1,6})\]: ?(?:Original )?$", before[-40:])):
                # a progress bar without a newline may stand before it: "...loss=1.79][rank1]: Traceback (most recent..."
                rank = int(m[1])
                key = (rank, line.source)
            if len(before) <= 80 and re.search(r"\w", before) and any(o.text.startswith(before) for o in lines[index + 1 : index + 6]):
                label, label_key, label_left = before, (rank, line.source or before.strip()), 400
        if label and label_left and text.startswith(label):
            key, text = label_key, text[len(label) :]
            header = header and _HEADER.search(text)
        if label_left:
            label_left -= 1
        may_follow = key == bare and last_key != bare and follows and not header
        if may_follow and (_FRAME.match(text) or (text[:1].isspace() and not bare_open) or _sure_exception(text)):
            key = last_key
        if key == bare:
            if header:
                bare_open = True
            elif text and not text[0].isspace():
                bare_open = False
        else:
            if header or _FRAME.match(text):
                follows = True
            elif key != last_key or (text and not text[0].isspace()):
                follows = False
        last_key = key
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = _Stream(key[0])
        if "[repeated " in text:
            text = _RAY_REPEATED.sub("", text)
        if header and _EMBEDDED in text:
            # one JSON string or repr that holds a whole traceback
            for part in text[text.index("Traceback (") :].split("\\n")[:400]:
                stream.add(index, line, part.replace('\\"', '"').rstrip("'\","))
            continue
        stream.add(index, line, text)
    return list(streams.values())


def _sure_exception(text: str) -> bool:
    m = _EXCEPTION.match(text)
    return bool(m and _SURE_TYPE.search(m[1]))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


class _Stream:
    """The lines of one process, and a recursive-descent reader over them."""

    def __init__(self, rank: int | None):
        self.rank = rank
        self.index: list[int] = []
        self.lines: list[LogLine] = []
        self.texts: list[str] = []
        self.anomalies: dict[str, list[Frame]] = {}  # torch anomaly mode: backward node to its forward frames

    def add(self, index: int, line: LogLine, text: str) -> None:
        self.index.append(index)
        self.lines.append(line)
        self.texts.append(text)

    # top level ------------------------------------------------------------------------------------

    def read(self) -> list[tuple[int, Traceback]]:
        out: list[tuple[int, Traceback]] = []
        i, n = 0, len(self.texts)
        while i < n and len(out) < MAX_TRACEBACKS:
            text = self.texts[i]
            start = i
            item: tuple[list[ExceptionInfo], int] | None = None
            if "Traceback (" in text and self._header(i):
                item = self._chain(i, 0)
            elif "Fatal Python error" in text and (m := _FATAL.search(text)):
                item = self._fatal(i, m)
            elif "Error detected in" in text and (m := _ANOMALY_HEAD.search(text)):
                frames, i = self._frames_only(i + 1)
                self.anomalies[m[1]] = frames
                continue
            elif ("File " in text and _FRAME.match(text)) or ("ray::" in text and _RAY_HEAD.match(text)):
                item = self._chain(i, 0, orphan=True)
            if item is None:
                i += 1
                continue
            exceptions, end = item
            i = max(end, start + 1)
            if not exceptions:
                continue
            out.append((self.index[start], self._traceback(start, i, exceptions)))
        return out

    def _traceback(self, start: int, end: int, exceptions: list[ExceptionInfo]) -> Traceback:
        worker, handled = None, False
        for back in range(start - 1, max(start - 6, -1), -1):
            before = self.texts[back]
            if _IGNORED.search(before):
                handled = True
                break
            if (m := _THREAD.search(before)) or (m := _PROCESS.match(before)):
                if m.re is _THREAD:
                    handled = not _MAIN_THREAD.search(m[1])
                else:
                    worker = m[1]
                break
            if "RemoteTraceback" in before:
                worker = "RemoteTraceback"
                break
            if before.strip() and not before.lstrip().startswith(('"""', "'''", "---", "+")):
                break
        for e in reversed(exceptions):
            if (m := _WORKER.search(f"{e.type}: {e.message}")) and (len(exceptions) > 1 or m[1]):
                worker = next(g for g in m.groups() if g)
                break
        if worker in ("RemoteTraceback", "_RemoteTraceback") and len(exceptions) > 1:
            exceptions = [replace(e, link="reraised") if k and e.link == "cause" and e.type == exceptions[0].type else e for k, e in enumerate(exceptions)]
        header = self.lines[start]
        if header.rank is None and self.rank is not None:
            header = replace(header, rank=self.rank)
        return Traceback(header, self.lines[end - 1].line, tuple(exceptions), worker, handled)

    # pieces ---------------------------------------------------------------------------------------

    def _header(self, i: int) -> bool:
        m = _HEADER.search(self.texts[i])
        if not m:
            return False
        tail = self.texts[i][m.end() :].strip(" :─-━╮+┐│|═.")
        return len(tail) <= 3  # prose about tracebacks goes on after the words

    def _chain(self, i: int, depth: int, orphan: bool = False) -> tuple[list[ExceptionInfo], int]:
        """The block at ``i`` and all that follow it by chain markers."""
        exceptions, i = self._block(i, depth, orphan)
        while exceptions and len(exceptions) < MAX_CHAIN:
            marker = self._marker(i)
            if marker is None:
                break
            j, link = marker
            k = j + 1
            while k < len(self.texts) and k <= j + 3 and not self.texts[k].strip(" |│"):
                k += 1
            if k >= len(self.texts):
                break
            text = self.texts[k]
            if ("Traceback (" in text and self._header(k)) or _RAY_HEAD.match(text):
                more, end = self._block(k, depth, False)
            elif _FRAME.match(text) or _sure_exception(text):
                more, end = self._block(k, depth, True)
            else:
                break
            if not more:
                i = max(i, end)
                break
            # of a block with a traceback in its message, the inner one follows by the marker
            more[0] = replace(more[0], link=link)
            exceptions += more
            i = end
        return exceptions, i

    def _marker(self, i: int) -> tuple[int, str] | None:
        for j in range(i, min(i + 14, len(self.texts))):
            text = self.texts[j]
            if m := _CHAIN.search(text):
                return j, "cause" if m[1] else "context"
            if "Traceback (" in text or _FRAME.match(text):
                return None
        return None

    def _block(self, i: int, depth: int, orphan: bool) -> tuple[list[ExceptionInfo], int]:
        """One traceback without its chain: its own exception last, those found in its message before it."""
        text = self.texts[i]
        if not orphan and "Traceback (" in text:
            if "Exception Group Traceback" in text and re.match(r"[\s|+]*\+ ", text):
                return self._group(i, depth)
            if "╭" in text or "─ Traceback" in text or "┌" in text or re.match(r"\s*\+-{3,}", text):
                return self._rich(i, depth)
            if m := _IPY_HEADER.match(text):
                return self._ipython(i, m[1], depth)
        return self._plain(i, depth, orphan)

    def _plain(self, i: int, depth: int, orphan: bool) -> tuple[list[ExceptionInfo], int]:
        n = len(self.texts)
        frames: list[Frame] = []
        header_indent = _indent(self.texts[i])
        j = i if orphan and not _RAY_HEAD.match(self.texts[i]) else i + 1
        frame_indent: int | None = None
        code_due = False
        foreign = 0
        last = i  # last line known to belong
        while j < n:
            text = self.texts[j]
            if not text.strip() or _REPEATED.match(text):
                j += 1
                foreign += 1
                if foreign > _FOREIGN:
                    break
                continue
            if m := _FRAME.match(text):
                _push(frames, Frame(m[1], int(m[2]), (m[3] or "").strip(), None, is_user_file(m[1])))
                if frame_indent is None:
                    frame_indent = _indent(text)
                code_due, foreign, last = True, 0, j
                j += 1
                continue
            if j > i and (("Traceback (" in text and self._header(j)) or _CHAIN.search(text)):
                break
            indent = _indent(text)
            if (frame_indent is not None and indent > frame_indent) or (frame_indent is None and indent > header_indent + 2):
                if code_due and frames and not _CARETS.match(text):
                    frames[-1] = replace(frames[-1], code=text.strip()[:300])
                    code_due = False
                last = j
                j += 1
                continue
            if _CARETS.match(text):
                j += 1
                continue
            m = _EXCEPTION.match(text)
            sure = bool(m and _SURE_TYPE.search(m[1]))
            if frame_indent == 0 and code_due and not sure:
                # the prefix took the indentation away: the line after a frame is its code
                frames[-1] = replace(frames[-1], code=text.strip()[:300])
                code_due = False
                last = j
                j += 1
                continue
            if m and (frames or not orphan or sure) and (sure or (self._plausible(m) and not orphan and not self._goes_on(j + 1, frames_only=bool(frames) and not foreign))):
                return self._finish(j, m[1], m[2] or "", frames, depth)
            if m is None and frames and not orphan and self._ends_here(text) and not self._goes_on(j + 1):
                break
            foreign += 1
            if foreign > _FOREIGN:
                break
            j += 1
        if not frames or orphan or depth or any(t.strip() for t in self.texts[last + 1 :][:1]):
            return [], last + 1
        # the log was cut off before its exception line
        return [ExceptionInfo("", "", tuple(frames), self.lines[last])], last + 1

    @staticmethod
    def _plausible(m: re.Match[str]) -> bool:
        name = m[1]
        if _NOT_TYPE.match(name):
            return False
        return name.rsplit(".", 1)[-1][:1].isupper() or "." in name

    @staticmethod
    def _ends_here(text: str) -> bool:
        return bool(_IGNORED.search(text) or _THREAD.search(text))

    def _goes_on(self, j: int, *, frames_only: bool = False) -> bool:
        """Whether frames of the same traceback, or a line that is surely its exception, still follow within a few lines."""
        for k in range(j, min(j + 8, len(self.texts))):
            if "Traceback (" in self.texts[k] or _CHAIN.search(self.texts[k]):
                return False
            if _FRAME.match(self.texts[k]):
                return True
            if not frames_only and _sure_exception(self.texts[k]):
                return True
        return False

    def _finish(self, j: int, kind: str, first: str, frames: list[Frame], depth: int, link: str = "first") -> tuple[list[ExceptionInfo], int]:
        """From the line "Type: message" on: the rest of the message and the tracebacks in it."""
        at = self.lines[j]
        extra, inner, defined, end = self._message(j, kind, first, depth)
        if (m := _ANOMALY.search(first)) and m[1] in self.anomalies:
            defined = self.anomalies.pop(m[1])
        if defined and any(f.user for f in defined):
            frames = (frames + defined)[-MAX_FRAMES:]
        message = "\n".join([first.strip(), *extra])[:_MESSAGE_CHARS].strip()
        if at.rank is None and self.rank is not None:
            at = replace(at, rank=self.rank)
        own = ExceptionInfo(kind, message, tuple(frames), at, "reraised" if inner else link)
        return [*inner, own], end

    def _message(self, j: int, kind: str, first: str, depth: int) -> tuple[list[str], list[ExceptionInfo], list[Frame], int]:
        at = self.lines[j]
        head = f"{kind}: {first}"
        wrapper = bool(_WRAPPER.search(head))
        ray = "ray::" in first or "RayTaskError" in kind
        tensorflow = bool(_TENSORFLOW.search(head))
        elastic = kind.endswith("ChildFailedError")
        extra: list[str] = []
        inner: list[ExceptionInfo] = []
        defined: list[Frame] = []
        n = len(self.texts)
        before = head
        rooted = False  # torchelastic: the inner one comes from "Root Cause"
        root_cause = False
        cpp = False
        i = j + 1
        end = i
        limit = i + (800 if wrapper or tensorflow else 60)
        while i < n and i < limit:
            text = self.texts[i]
            stripped = text.strip()
            if "above exception" in text and _CHAIN.search(text):
                break
            if "Traceback (" in text and self._header(i):
                nested = _INTRO.search(text) or _INTRO.search(before) or (wrapper and not inner) or (tensorflow and _sure_exception(before)) or elastic
                if not nested or depth >= _DEPTH:
                    break
                found, i = self._chain(i, depth + 1)
                if found and (not inner or (root_cause and not rooted)):
                    inner, rooted = found, root_cause
                end = i
                before = ""
                continue
            if "File " in text and _FRAME.match(text):
                if not (ray and not inner and depth < _DEPTH):
                    break
                found, i = self._chain(i, depth + 1, orphan=True)
                inner = found
                end = i
                continue
            if ray and not inner and _RAY_HEAD.match(text) and depth < _DEPTH:
                found, i = self._chain(i, depth + 1, orphan=True)
                inner = found
                end = i
                continue
            if _DEFINED_AT.search(text):
                found_frames, i = self._frames_only(i + 1)
                defined = defined or found_frames
                end = i
                before = ""
                continue
            if _CPP.match(text):
                cpp = True
                i += 1
                end = i
                continue
            if not stripped:
                if not wrapper and not tensorflow:
                    k = i + 1
                    while k < n and k < i + 3 and not self.texts[k].strip():
                        k += 1
                    if k >= n or not (_AFTER_BLANK.match(self.texts[k]) or _INTRO.search(self.texts[k]) or _CPP.match(self.texts[k])):
                        break
                    if _OTHER.match(self.texts[k]) and not _INTRO.search(self.texts[k]):
                        break
                i += 1
                continue
            line = self.lines[i]
            if inner and not elastic:
                break
            if (line.level and line.level != at.level) or (line.time is not None and at.time is None):
                break
            if _OTHER.match(text) and not elastic:
                break
            if "Root Cause" in text:
                root_cause = True
            if len(extra) < _MESSAGE_LINES and not cpp and stripped not in ('"""', "'''"):
                extra.append(stripped[:1000])
            before = text
            i += 1
            end = i
        return extra, inner, defined, end

    def _frames_only(self, i: int) -> tuple[list[Frame], int]:
        """Frames that follow without header or exception (where a graph node was defined)."""
        frames: list[Frame] = []
        j = i
        end = i
        while j < len(self.texts):
            text = self.texts[j]
            if m := _FRAME.match(text):
                _push(frames, Frame(m[1], int(m[2]), (m[3] or "").strip(), None, is_user_file(m[1])))
            elif text.strip() and not text[:1].isspace():
                break
            elif frames and text.strip() and frames[-1].code is None and not _CARETS.match(text):
                frames[-1] = replace(frames[-1], code=text.strip()[:300])
            elif text.strip() and not frames:
                break
            j += 1
            if text.strip():
                end = j
            elif j - end > 2:
                break
        return frames, end

    # other shapes ---------------------------------------------------------------------------------

    def _fatal(self, i: int, m: re.Match[str]) -> tuple[list[ExceptionInfo], int]:
        """faulthandler: the current thread, else the first one. It prints the innermost frame first."""
        threads: list[tuple[bool, list[Frame]]] = []
        j = i + 1
        end = j
        quiet = 0
        while j < len(self.texts) and quiet < 12:
            text = self.texts[j]
            if t := _FATAL_THREAD.match(text):
                threads.append((t[1].startswith("Current"), []))
                quiet, end = 0, j + 1
            elif threads and (f := _FATAL_FRAME.match(text)):
                if len(threads[-1][1]) < MAX_FRAMES:
                    threads[-1][1].append(Frame(f[1], int(f[2]), f[3].strip(), None, is_user_file(f[1])))
                quiet, end = 0, j + 1
            elif text.startswith("Extension modules:"):
                end = j + 1
                break
            elif "Traceback (" in text or "Fatal Python error" in text:
                break
            else:
                quiet += 1
            j += 1
        chosen = next((f for current, f in threads if current), None)
        if chosen is None:  # the crashed thread is not Python's: the first that runs the user's code
            chosen = next((f for _, f in threads if any(x.user for x in f)), threads[0][1] if threads else [])
        at = self.lines[i] if self.lines[i].rank is not None or self.rank is None else replace(self.lines[i], rank=self.rank)
        return [ExceptionInfo("Fatal Python error", m[1].strip(), tuple(reversed(chosen)), at)], end

    def _rich(self, i: int, depth: int) -> tuple[list[ExceptionInfo], int]:
        frames: list[Frame] = []
        j = i + 1
        pending = ""
        opened = 0  # locals boxes inside
        while j < len(self.texts) and j < i + 3000:
            text = self.texts[j].strip()
            body = text.strip("│|┃").strip() if text[:1] in "│|┃" else ""
            if text[:1] in "╰└" or (text[:2] == "+-" and text.rstrip("+-") == ""):
                break
            if not body:
                if text[:1] not in "│|┃":
                    break
                pending = ""
            elif body[:1] in "╭┌":
                opened += 1
            elif body[:1] in "╰└":
                opened = max(opened - 1, 0)
            elif opened:
                pass
            elif c := _RICH_CODE.match(body):
                if frames and frames[-1].line == int(c[1]):
                    frames[-1] = replace(frames[-1], code=c[2].strip(" │|")[:300])
                pending = ""
            elif (f := _RICH_FRAME.match(pending + body)) or (f := _RICH_FRAME.match(f"{pending} {body}")):
                _push(frames, Frame(f[1], int(f[2]), f[3].strip(), None, is_user_file(f[1])))
                pending = ""
            elif body[:1] in "/~<" or re.match(r"[A-Za-z]:\\", body) or pending:
                pending = (pending + body)[:2000]  # a long path is wrapped
            j += 1
        k = j + 1 if j < len(self.texts) and self.texts[j].strip()[:1] in "╰└+" else j
        for p in range(k, min(k + 6, len(self.texts))):
            m = _EXCEPTION.match(self.texts[p])
            if m and (_SURE_TYPE.search(m[1]) or self._plausible(m)):
                return self._finish(p, m[1], m[2] or "", frames, depth)
        if not frames:
            return [], k
        return [ExceptionInfo("", "", tuple(frames), self.lines[min(j, len(self.lines) - 1)])], k

    def _ipython(self, i: int, kind: str, depth: int) -> tuple[list[ExceptionInfo], int]:
        frames: list[Frame] = []
        short = kind.rsplit(".", 1)[-1]
        j = i + 1
        while j < len(self.texts) and j < i + 3000:
            text = self.texts[j]
            m = _EXCEPTION.match(text)
            if m and m[1].rsplit(".", 1)[-1].split("(")[0] == short:
                return self._finish(j, m[1], m[2] or "", frames, depth)
            if "Traceback (" in text or _CHAIN.search(text):
                break
            if a := _IPY_ARROW.match(text.strip()):
                if frames and frames[-1].code is None:
                    last = frames[-1]
                    frames[-1] = replace(last, line=last.line or int(a[1]), code=(a[2] or "").strip()[:300])
            elif f := _FRAME.match(text):
                _push(frames, Frame(f[1], int(f[2]), (f[3] or "").strip(), None, is_user_file(f[1])))
            elif f := _IPY_FRAME.match(text):
                cell = f["cell"] or f["icell"]
                file = f"Cell In[{cell}]" if cell is not None else f["file"] or f["ofile"]
                line = f["cline"] or f["fline"] or 0
                function = f["cfunc"] or f["ifunc"] or f["ffunc"] or f["ofunc"] or ""
                _push(frames, Frame(file, int(line), function.strip(), None, is_user_file(file)))
            j += 1
        if not frames:
            return [], i + 1
        return [ExceptionInfo(kind, "", tuple(frames), self.lines[i])], max(j, i + 1)

    def _group(self, i: int, depth: int) -> tuple[list[ExceptionInfo], int]:
        """PEP 654: the members first, then the group that carries them."""
        pieces: list[_Stream] = [_Stream(self.rank)]
        j = i
        while j < len(self.texts) and j < i + 5000:
            text = self.texts[j]
            if j > i and not re.match(r"\s*[|+]", text):
                break
            if re.match(r"\s*\+[-+]+(?: [\d.]+ -+)?\s*$", text):
                pieces.append(_Stream(self.rank))
            else:
                pieces[-1].add(j, self.lines[j], re.sub(r"^\s*(?:\| ?|\+ )(?:\s*\+ (?=Exception Group))?", "", text))
            j += 1
        own: list[ExceptionInfo] = []
        members: list[ExceptionInfo] = []
        for k, piece in enumerate(pieces[:MAX_CHAIN]):
            if not piece.texts or depth >= _DEPTH:
                continue
            start = next((p for p, t in enumerate(piece.texts) if "Traceback (" in t), None)
            if start is None:
                # a member without frames
                start = next((p for p, t in enumerate(piece.texts) if _sure_exception(t)), None)
                if start is None:
                    continue
                m = _EXCEPTION.match(piece.texts[start])
                found, _ = piece._finish(start, m[1], m[2] or "", [], depth + 1)
            else:
                piece.texts[start] = "Traceback (most recent call last):"
                found, _ = piece._chain(start, depth + 1)
            if k == 0:
                own = found
            else:
                members += [replace(e, link="group") if e.link == "first" else e for e in found]
        if members:
            members[0] = replace(members[0], link="first")
            own = [replace(e, link="reraised") for e in own]
        return [*members, *own][:MAX_CHAIN], j


def _push(frames: list[Frame], frame: Frame) -> None:
    """Append within the limit; of endless recursion the middle is dropped."""
    if len(frames) >= MAX_FRAMES:
        del frames[20]
    frames.append(frame)
