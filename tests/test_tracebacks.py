"""The traceback reader on what each program prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from check_failed_run.scanning.facts import LogLine
from check_failed_run.scanning.tracebacks import MAX_FRAMES, is_user_file, read_tracebacks


def lines(text: str, rank: int | None = None, source: str | None = None) -> list[LogLine]:
    return [LogLine("train.log", n, 0, t, t, rank=rank, source=source) for n, t in enumerate(text.split("\n"), 1)]


def read(text: str):
    return read_tracebacks(lines(text))


def types(traceback) -> list[str]:
    return [e.type for e in traceback.exceptions]


PLAIN = """\
epoch 1
Traceback (most recent call last):
  File "/work/a/train.py", line 9, in <module>
    main()
    ~~~~^^
  File "/work/a/data.py", line 4, in main
    return int(
           ~~~^
        row["x"],
        ^^^^^^^^^
    )
    ^
  File "/usr/lib/python3.13/functools.py", line 12, in wrapper
    return f(*a)
ValueError: invalid literal for int() with base 10: 'a'
done"""


def test_plain():
    (t,) = read(PLAIN)
    assert t.root.type == "ValueError"
    assert t.root.message.startswith("invalid literal for int() with base 10: 'a'")
    assert t.root.location == "/work/a/data.py:4"
    assert [f.user for f in t.root.frames] == [True, True, False]
    assert t.root.frames[0].code == "main()"
    assert t.root.frames[1].function == "main"
    assert t.header.line == 2 and t.root.at.line == 15
    assert not t.handled and t.worker is None


def test_message_of_several_lines_and_cpp_frames():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    x.cuda()
torch.AcceleratorError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7fafeab6915f in libc10.so)
frame #1: <unknown function> + 0x4d (0x7fafeab6915f in libc10.so)

epoch 3 loss 1.2"""
    )
    assert t.root.message.splitlines()[0] == "CUDA error: device-side assert triggered"
    assert "TORCH_USE_CUDA_DSA" in t.root.message
    assert "frame #0" not in t.root.message and "epoch 3" not in t.root.message
    assert t.last_line == 10


@pytest.mark.parametrize(
    ("marker", "link"),
    [
        ("The above exception was the direct cause of the following exception:", "cause"),
        ("During handling of the above exception, another exception occurred:", "context"),
    ],
)
def test_chain(marker, link):
    (t,) = read(
        f"""\
Traceback (most recent call last):
  File "data.py", line 3, in load
    open(p)
FileNotFoundError: [Errno 2] No such file or directory: 'x'

{marker}

Traceback (most recent call last):
  File "train.py", line 30, in main
    load()
RuntimeError: cannot load"""
    )
    assert types(t) == ["FileNotFoundError", "RuntimeError"]
    assert [e.link for e in t.exceptions] == ["first", link]
    assert t.exceptions[1].location == "train.py:30"


def test_syntax_error_without_header():
    (t,) = read('  File "train.py", line 3\n    def f(\n         ^\nSyntaxError: \'(\' was never closed')
    assert t.root.type == "SyntaxError" and t.root.location == "train.py:3"


def test_bare_exception_name():
    (t,) = read('Traceback (most recent call last):\n  File "train.py", line 3, in f\n    x()\nKeyboardInterrupt\n')
    assert t.root.type == "KeyboardInterrupt" and t.root.message == ""


def test_log_that_begins_in_mid_traceback():
    (t,) = read('    main()\n  File "train.py", line 8, in main\n    step()\n  File "model.py", line 2, in step\n    a + b\nstruct.error: bad\nnext')
    assert t.root.type == "struct.error" and t.root.location == "model.py:2"


def test_log_that_ends_in_mid_traceback():
    (t,) = read('Traceback (most recent call last):\n  File "train.py", line 8, in main\n    step()')
    assert t.root.type == "" and t.root.location == "train.py:8"


def test_dataloader_worker():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "/work/train.py", line 14, in <module>
    for b in loader:
  File "/opt/conda/lib/python3.11/site-packages/torch/_utils.py", line 794, in reraise
    raise exception
KeyError: Caught KeyError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/opt/conda/lib/python3.11/site-packages/PIL/ImageFile.py", line 405, in load
    s = read(read_bytes)
struct.error: unpack_from requires a buffer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/work/data.py", line 22, in load
    return im.convert("L")
KeyError: 'label'

Saving"""
    )
    assert types(t) == ["struct.error", "KeyError", "KeyError"]
    assert [e.link for e in t.exceptions] == ["first", "cause", "reraised"]
    assert t.worker == "DataLoader worker process 3"
    assert t.exceptions[1].location == "/work/data.py:22"


RAY = """\
Traceback (most recent call last):
  File "/srv/run.py", line 43, in <module>
    ray.get(scale.remote())
  File "/opt/env/lib/python3.11/site-packages/ray/_private/worker.py", line 2639, in get
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(ValueError): ray::scale() (pid=12, ip=10.0.0.1)
  File "/srv/shards.py", line 20, in scale
    raise ValueError("empty")
ValueError: empty"""


def test_ray_task_error():
    (t,) = read(RAY)
    assert types(t) == ["ValueError", "ray.exceptions.RayTaskError(ValueError)"]
    assert t.root.location == "/srv/shards.py:20"
    assert t.exceptions[1].link == "reraised" and t.worker == "RayTaskError"


def test_joblib_remote_traceback():
    (t,) = read(
        '''\
joblib.externals.loky.process_executor._RemoteTraceback: 
"""
Traceback (most recent call last):
  File "/w/features.py", line 18, in f
    return 1 / 0
ZeroDivisionError: division by zero
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/w/job.py", line 40, in <module>
    main()
ZeroDivisionError: division by zero'''
    )
    assert t.root.location == "/w/features.py:18" and t.worker == "RemoteTraceback"
    assert t.exceptions[1].link == "reraised"


def test_spawned_process():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    mp.spawn(run)
  File "/opt/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 188, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/opt/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 75, in _wrap
    fn(i, *args)
  File "/w/train.py", line 5, in run
    boom()
IndexError: list index out of range
"""
    )
    assert types(t) == ["IndexError", "torch.multiprocessing.spawn.ProcessRaisedException"]
    assert t.worker == "Process 1" and t.root.location == "/w/train.py:5"


def test_torchelastic_error_file():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-05-06_03:26:41
  host      : n1
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 7)
  error_file: /tmp/e.json
  traceback : Traceback (most recent call last):
    File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 346, in wrapper
      return f(*args, **kwargs)
    File "/w/train.py", line 30, in main
      raise ValueError("x")
  ValueError: x
  
============================================================"""
    )
    assert types(t)[0] == "ValueError" and types(t)[-1].endswith("ChildFailedError")
    assert t.root.location == "/w/train.py:30"


def test_tensorflow_py_function():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "/w/fit.py", line 55, in <module>
    main()
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node EagerPyFunc defined at (most recent call last):
<stack traces unavailable>
ValueError: day is out of range for month
Traceback (most recent call last):

  File "/opt/lib/python3.11/site-packages/tensorflow/python/ops/script_ops.py", line 268, in __call__
    return func(device, token, args)
           ^^^^^^^^^^^^^^^^^^^^^^^^^

  File "/w/data.py", line 41, in parse_day
    day = strptime(raw)

ValueError: day is out of range for month


\t [[{{node EagerPyFunc}}]] [Op:__inference_one_step_on_iterator_1]"""
    )
    assert t.root.type == "ValueError" and t.root.location == "/w/data.py:41"
    assert t.exceptions[-1].link == "reraised"


def test_tensorflow_node_defined_at():
    (t,) = read(
        """\
Traceback (most recent call last):
  File "/w/train.py", line 57, in <module>
    main()
tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:

Detected at node net/sub defined at (most recent call last):
  File "/w/train.py", line 57, in <module>

  File "/w/modeling.py", line 8, in call

OOM when allocating tensor with shape[1,2]"""
    )
    assert t.root.location == "/w/modeling.py:8"
    assert "OOM when allocating tensor" in t.root.message


def test_autograd_anomaly_frames_belong_to_the_error():
    (t,) = read(
        """\
/opt/lib/python3.11/site-packages/torch/autograd/graph.py:979: UserWarning: Error detected in LogBackward0. Traceback of forward call that caused the error:
  File "/w/train.py", line 16, in <module>
    main()
  File "/w/net.py", line 19, in forward
    return x.log()
 (Triggered internally at ../torch/csrc/autograd/python_anomaly_mode.cpp:122.)
  return Variable._execution_engine.run_backward(
Traceback (most recent call last):
  File "/w/train.py", line 16, in <module>
    loss.backward()
RuntimeError: Function 'LogBackward0' returned nan values in its 0th output."""
    )
    assert t.root.type == "RuntimeError" and t.root.location == "/w/net.py:19"


def test_exception_group():
    (t,) = read(
        """\
  + Exception Group Traceback (most recent call last):
  |   File "/w/a.py", line 5, in <module>
  |     raise ExceptionGroup("many", errors)
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/b.py", line 2, in f
    |     int("a")
    | ValueError: bad
    +---------------- 2 ----------------
    | TypeError: worse
    +------------------------------------
after"""
    )
    assert types(t) == ["ValueError", "TypeError", "ExceptionGroup"]
    assert t.root.location == "/w/b.py:2" and [e.link for e in t.exceptions] == ["first", "group", "reraised"]
    assert t.last_line == 12


def test_rich_box():
    (t,) = read(
        """\
╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮
│ /home/u/train.py:12 in main                                                                      │
│                                                                                                  │
│    9                                                                                             │
│ ❱ 12 │   fit()                                                                                    │
│                                                                                                  │
│ /opt/conda/lib/python3.10/site-packages/torch/nn/modules/a_very_long_directory_name/and_another/ │
│ module.py:1501 in _call_impl                                                                     │
│ ╭──── locals ────╮                                                                               │
│ │ x = 3          │                                                                               │
│ ╰────────────────╯                                                                               │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
RuntimeError: shape '[2]' is invalid for input of size 3
epoch 1"""
    )
    assert t.root.type == "RuntimeError" and t.root.location == "/home/u/train.py:12"
    assert t.root.frames[0].code == "fit()" and t.root.frames[1].line == 1501


@pytest.mark.parametrize(
    ("text", "location"),
    [
        (
            """\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
Cell In[3], line 5
      3 x = 1
----> 5 f()

File ~/lib.py:12, in f(a)
     10 def f(a):
---> 12     raise ValueError("boo")

ValueError: boo""",
            "~/lib.py:12",
        ),
        (
            """\
---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
<ipython-input-7-0123abc> in <module>
      1 for b in loader:
----> 2     step(b)

/usr/local/lib/python3.7/dist-packages/torch/nn/functional.py in linear(x, w)
   1846     if has_torch_function_variadic(input, weight):
-> 1847         return handle_torch_function(linear)

RuntimeError: CUDA error""",
            "<ipython-input-7-0123abc>:2",
        ),
        (
            """\
RuntimeError                              Traceback (most recent call last)
Input In [4], in <cell line: 3>()
      1 a = 2
----> 3 g()

RuntimeError: x""",
            "Cell In[4]:3",
        ),
    ],
)
def test_notebook(text, location):
    (t,) = read(text)
    assert t.root.location == location
    assert t.root.type in ("ValueError", "RuntimeError") and t.root.message


def test_ignored_and_threads():
    body = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nRuntimeError: x\n'
    ignored, helper, pin, plain = read(
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n" + body
        + "Exception in thread Thread-5 (plot):\n" + body
        + "Exception in thread Thread-4 (_pin_memory_loop):\n" + body
        + "ERROR:root:step failed\n" + body
    )  # fmt: skip
    assert ignored.handled and helper.handled and not pin.handled and not plain.handled


def test_process_name():
    (t,) = read('Process SpawnProcess-2:\nTraceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nRuntimeError: x')
    assert t.worker == "SpawnProcess-2"


def test_faulthandler():
    (t,) = read(
        """\
Fatal Python error: Segmentation fault

Thread 0x00007fa1d6ffd640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007fa5b1b4a740 (most recent call first):
  File "/opt/lib/python3.11/site-packages/decord/video_reader.py", line 174 in get_batch
  File "/w/clips.py", line 77 in load
  File "/w/train.py", line 9 in main

Extension modules: numpy (total: 1)"""
    )
    assert (t.root.type, t.root.message) == ("Fatal Python error", "Segmentation fault")
    assert t.root.location == "/w/clips.py:77" and t.last_line == 11


def test_ranks_are_separated_and_bare_lines_join():
    def line(n, text, rank=None):
        return LogLine("train.log", n, 0, text, text, rank=rank)

    a, b = read_tracebacks(
        [
            line(1, "Traceback (most recent call last):", 1),
            line(2, "Traceback (most recent call last):", 0),
            line(3, '  File "a.py", line 1, in f', 1),
            line(4, '  File "b.py", line 2, in g', 0),
            line(5, "step 4 loss 0.1"),
            line(6, "    f()", 1),
            line(7, "    g()", 0),
            line(8, "ValueError: a", 1),
            line(9, "ConnectionError: b", 0),
        ]
    )
    assert (a.rank, a.root.location, b.rank, b.root.location) == (1, "a.py:1", 0, "b.py:2")
    (t,) = read_tracebacks([line(1, "Traceback (most recent call last):", 3), *(line(n, x) for n, x in enumerate(['  File "a.py", line 1, in f', "    f()", "ValueError: a"], 2))])
    assert t.rank == 3 and t.root.at.rank == 3


def test_header_behind_a_progress_bar_or_an_unknown_prefix():
    (t,) = read_tracebacks(
        [
            LogLine("l", 1, 0, "", "epoch 0: 42%|████▏ | 21/50 [00:00<00:00, 41.19it/s][rank1]: Traceback (most recent call last):"),
            LogLine("l", 2, 0, "", '  File "a.py", line 1, in f', rank=1),
            LogLine("l", 3, 0, "", "KeyError: 'a'", rank=1),
        ]
    )
    assert t.rank == 1 and t.root.type == "KeyError"
    (t,) = read('(worker 3) Traceback (most recent call last):\n(worker 3)   File "a.py", line 1, in f\n(worker 3)     g()\n(worker 0) hello\n(worker 3) ValueError: x')
    assert t.root.type == "ValueError" and t.root.location == "a.py:1"


def test_prefix_that_took_the_indentation():
    (t,) = read('Traceback (most recent call last):\nFile "a.py", line 1, in f\ng()\nFile "b.py", line 2, in g\nh: int = 3\nValueError: x')
    assert t.root.type == "ValueError" and t.root.location == "b.py:2" and t.root.frames[0].code == "g()"


def test_foreign_lines_between_frames():
    (t,) = read('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nINFO: saved\nEpoch: 3\n  File "b.py", line 2, in g\n    h()\nValueError: x')
    assert t.root.location == "b.py:2"


def test_traceback_inside_one_string():
    (t,) = read(r'''  "py_callstack": "Traceback (most recent call last):\n  File \"/w/a.py\", line 3, in f\n    g()\nValueError: x\n"''')
    assert t.root.type == "ValueError" and t.root.location == "/w/a.py:3"


def test_two_tracebacks_in_a_row_are_two():
    body = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nRuntimeError: x\n'
    assert len(read(body + body)) == 2


def test_prose_is_no_traceback():
    assert read("see Traceback (most recent call last) in the docs for more\nValueError: x") == []
    assert read('Stack (most recent call last):\n  File "x.py", line 1, in f\n    g()\nINFO done') == []


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("train.py", True),
        ("/home/u/proj/bin_utils/train.py", True),
        ("<ipython-input-3-abc>", True),
        ("Cell In[3]", True),
        ("/deps/MaxText/train.py", True),
        ("/tmp/ray/session_1/working_dir_files/_ray_pkg_1/train.py", True),
        ("/usr/lib/python3/dist-packages/x.py", False),
        ("/usr/local/lib/python3.11/_strptime.py", False),
        ("/opt/conda/envs/e/lib/python3.10/site-packages/torch/a.py", False),
        ("<frozen runpy>", False),
        ("<string>", False),
        ("/opt/venv/bin/torchrun", False),
        ("h5py/h5f.pyx", False),
        ("/opt/NeMo/nemo/collections/llm/api.py", False),
        ("/workspace/packs/transformers/training_args.py", False),
        ("/tmp/__autograph_generated_file7.py", False),
    ],
)
def test_user_frames(path, user):
    assert is_user_file(path) is user


def test_bounds():
    deep = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n    f()\n' * 5000 + "RecursionError: x"
    (t,) = read(deep)
    assert len(t.root.frames) == MAX_FRAMES and t.root.type == "RecursionError"
    many = "Traceback (most recent call last):\n" * 3000 + "Caught X in DataLoader worker process 1.\n" * 100
    assert len(read(many)) <= 400


@given(
    st.lists(
        st.one_of(
            st.sampled_from([*PLAIN.split("\n"), *RAY.split("\n"), "", '"""', "Original Traceback (most recent call last):", "╭─ Traceback (most recent call last) ─╮", "│ /a.py:1 in f │",
                             "During handling of the above exception, another exception occurred:", "  + Exception Group Traceback (most recent call last):", "  | ValueError: x",
                             "Fatal Python error: Aborted", "KeyError: Caught KeyError in DataLoader worker process 0.", "X  Traceback (most recent call last)"]),
            st.text(max_size=60),
        ),
        max_size=60,
    ),
    st.lists(st.sampled_from([None, 0, 1]), max_size=60),
)  # fmt: skip
def test_never_raises(texts, ranks):
    ranks = ranks + [None] * len(texts)
    found = read_tracebacks([LogLine("l", n, 0, t, t, rank=r) for n, (t, r) in enumerate(zip(texts, ranks, strict=False), 1)])
    for t in found:
        assert t.exceptions and t.header.line <= t.last_line
