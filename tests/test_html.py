"""The HTML page: what it says, that nothing of a report becomes markup, and how a real browser shows it."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import typing
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pygal")

from check_failed_run import api
from check_failed_run.record import RunRecord
from check_failed_run.report import dag_picture, html, plots, schema
from check_failed_run.report.context import MAX_CONTEXTS, contexts
from check_failed_run.report.model import Context, FailedTask, GraphTask, Pipeline, RankState, Report, Series
from check_failed_run.scanning.facts import LogFacts, LogLine
from check_failed_run.sources.log_files import add_text

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "cases" / "logs"
AXE = ROOT / "tests" / "vendor" / "axe-core" / "axe.min.js"
CRASH, RANKS, HEALTHY = "nan-inf-torch-metric-assert-late-trap", "nccl-distributed-heartbeat-monitor", "healthy-fairseq-overflow-notes"
WIDTHS = (400, 1400)


# ---------------------------------------------------------------------------------------------- five kinds of report


@functools.cache
def of_case(name: str) -> Report:
    case = json.loads((CASES / name / "case.json").read_text())
    record = api.read([str(CASES / name / file) for file in case.get("inputs", ["train.log"])])
    return api.diagnose(record, run_id="run-1")


def a_graph() -> list[GraphTask]:
    loop = [
        GraphTask(f"train-{n}", "train-model", "FAILED" if n == 2 else "CANCELLED" if n == 3 else "SUCCEEDED", "loop", failed_first=n == 2, seconds=3000 + 60 * n)
        for n in range(6)
    ]
    shards = [GraphTask(f"shard-{n}", "shard-statistics", "SUCCEEDED", "shards", seconds=3) for n in range(12)]
    return [
        GraphTask("load", "load-training-data", "SKIPPED", cached=True, seconds=1),
        GraphTask("validate", "validate-schema", "SUCCEEDED", depends_on=["load"], seconds=42),
        GraphTask("features", "compute-features", "SUCCEEDED", depends_on=["load"], seconds=1260),
        GraphTask("loop", "for-loop-1", "FAILED", depends_on=["validate", "features"], is_group=True),
        *loop,
        GraphTask("shards", "for-loop-2", "SUCCEEDED", depends_on=["load"], is_group=True),
        *shards,
        GraphTask("condition", "condition-1", "NOT_TRIGGERED", depends_on=["loop"], is_group=True),
        GraphTask("upload", "upload-model", "NOT_TRIGGERED", "condition"),
        GraphTask("deploy", "deploy-endpoint", "NOT_TRIGGERED", "condition", depends_on=["upload"]),
        GraphTask("report", "report-metrics-to-the-registry", "FAILED", depends_on=["shards", "load"], seconds=4),
        GraphTask("exit", "check-failed-run", "RUNNING", is_exit_task=True),
    ]


def a_pipeline(**changes) -> Pipeline:
    console = "https://console.cloud.google.com/vertex-ai/pipelines/locations/europe-west1/runs/nightly?project=acme-ml"
    values = {
        "name": "projects/400200300100/locations/europe-west1/pipelineJobs/nightly-20260504120000",
        "state": "FAILED",
        "error": "The DAG failed because some tasks failed. The failed tasks are: [train-model].",
        "tasks": {"CANCELLED": 1, "FAILED": 2, "NOT_TRIGGERED": 2, "SKIPPED": 1, "SUCCEEDED": 19},
        "failed_tasks": ["train-model", "report-metrics-to-the-registry"],
        "not_triggered_tasks": ["deploy-endpoint", "upload-model"],
        "first_failed_task": "train-model",
        "last_succeeded_task": "compute-features",
        "failures": [
            FailedTask("train-model", "FAILED", "The replica workerpool0-0 exited with a non-zero status of 1.", 1, 2, console, "nan-inf", 0.97, "loss became NaN"),
            FailedTask("report-metrics-to-the-registry", "FAILED", "403 denied", log="http://intranet.example/log"),
        ],
        "console": console,
        "graph": a_graph(),
    }
    return Pipeline(**{**values, **changes})


def in_time(count: int = 8) -> list[RankState]:
    """Rank 5 stops, the others wait for it for half an hour; one says nothing."""
    ranks = [
        RankState(n, "failed-first" if n == 5 else "followed", 100 + n, f"rank{n}.log", f"2026-03-02T11:{'00' if n == 5 else '30'}:{n % 60:02d}Z", "ended")
        for n in range(count)
    ]
    return [*ranks, RankState(count, "silent"), RankState(count + 1, "unaffected")]


def five() -> dict[str, Report]:
    nothing = RunRecord(failed=True)
    add_text("train.log", "starting worker 0\nloading configuration\n", nothing)
    return {
        "crash": of_case(CRASH),
        "ranks": dataclasses.replace(of_case(RANKS), ranks=in_time()),
        "pipeline": dataclasses.replace(of_case(CRASH), pipeline=a_pipeline()),
        "unknown": api.diagnose(nothing, run_id="run-1"),
        "healthy": of_case(HEALTHY),
    }


KINDS = ("crash", "ranks", "pipeline", "unknown", "healthy")


@functools.cache
def page(kind: str) -> str:
    return html.render(five()[kind])


def test_the_five_are_what_they_are_called():
    reports = five()
    assert reports["crash"].primary_cause == "nan-inf" and reports["crash"].metrics
    assert reports["ranks"].primary_cause == "nccl-distributed"
    assert reports["unknown"].primary_cause == "unknown"
    assert reports["healthy"].primary_cause == "none"
    for report in reports.values():
        schema.validate(report.to_dict())


# ---------------------------------------------------------------------------------------------- the text of the page


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside of style and script."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.code: dict[str, list[str]] = {"style": [], "script": []}
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside in self.code:
            self.code[self.inside].append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_verdict_comes_first():
    report, text = five()["crash"], Reader(page("crash")).text
    first = text.index("Evidence")
    point = report.failure_point
    for part in ("Crashed", "NaN or Inf in training", report.root_cause, f"{point.input}:{point.line}", str(point.location), report.fixes[0].action, report.decision):
        assert -1 < text.find(part) < first, part
    assert text.index("Crashed") < text.index("First fix") < text.index("Metrics") < text.index("Why not another cause")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_needs_nothing_else(kind):
    reader = Reader(page(kind))
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "source", "use", "image"} & {tag for tag, _ in reader.tags}
    for tag, attributes in reader.tags:
        assert not {"src", "srcset", "style", "xlink:href"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
        if "href" in attributes:
            assert tag == "a" and attributes["href"].split("/")[2] in html.LINK_HOSTS
            assert "noopener" in attributes["rel"]
    style = "".join(reader.code["style"])
    assert "@import" not in style and "url(" not in style
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert len(page(kind)) < 300_000


def test_the_policy_holds_the_hashes_of_what_is_there():
    import hashlib

    reader = Reader(page("crash"))
    policy = next(a["content"] for tag, a in reader.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256("".join(reader.code[kind]).encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_the_same_report_gives_the_same_bytes():
    assert html.render(five()["pipeline"]) == html.render(five()["pipeline"])


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("https://console.cloud.google.com/x?y=1", True),
        ("http://console.cloud.google.com/", False),
        ("https://console.cloud.google.com.evil.example/", False),
        ("https://console.cloud.google.com@evil.example/", False),
        ("https://user@console.cloud.google.com/", False),
        ("https://console.cloud.google.com:444/", False),
        ("https://evil.example/console.cloud.google.com", False),
        ("https://console.cloud.google.com\\@evil.example/", False),
        ("javascript:alert(1)//console.cloud.google.com", False),
        ("https://console.cloud.google.com/\nx", False),
        ("//console.cloud.google.com/", False),
        ("https://[/", False),
        ("", False),
        (None, False),
    ],
)
def test_links_only_to_known_hosts(address, kept):
    assert html.link(address) == (address if kept else "")


def test_an_unknown_address_stays_text():
    reader = Reader(page("pipeline"))
    assert "http://intranet.example/log" in reader.text
    assert not [a for tag, a in reader.tags if tag == "a" and "intranet" in (a["href"] or "")]


HOSTILE = (
    "</pre></code></style></title></svg></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "\"' onmouseover=window.hacked=1 autofocus onfocus=window.hacked=1 {{7*7}} {% raw %} javascript:window.hacked=1 ]]> <!-- &lt;b&gt; <svg onload=window.hacked=1>"
)


def hostile(value, kind=None):
    """A copy in which every free string is hostile."""
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        closed = {"timestamp", "state", "schema_version", "skill_name"}
        return dataclasses.replace(value, **{f.name: getattr(value, f.name) if f.name in closed else hostile(getattr(value, f.name), hints[f.name]) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {key if dataclasses.is_dataclass(item) else HOSTILE: hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, str):
        return value if typing.get_origin(kind) is typing.Literal else HOSTILE
    return value


@functools.cache
def hostile_page() -> str:
    report = hostile(five()["pipeline"])
    report.pipeline.graph = [dataclasses.replace(task, id=f"{HOSTILE}{n}", name=HOSTILE, parent=None, depends_on=[f"{HOSTILE}{n - 1}"]) for n, task in enumerate(report.pipeline.graph)]
    report.ranks = [dataclasses.replace(rank, timestamp=None, input=HOSTILE, what=HOSTILE) for rank in in_time()]
    report.metrics = {f"eval_{HOSTILE}": report.metrics["loss"], HOSTILE: report.metrics["loss"]}
    return html.render(report)


def test_nothing_of_a_report_becomes_markup():
    reader, clean = Reader(hostile_page()), {tag for kind in KINDS for tag, _ in Reader(page(kind)).tags}
    assert {tag for tag, _ in reader.tags} <= clean
    assert [tag for tag, _ in reader.tags].count("script") == 1
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "autofocus"], tag
    assert "49" not in reader.text.split("{{7*7}}")[0][-10:] and "{{7*7}}" in reader.text


def test_empty_and_odd_reports_are_shown():
    odd = dataclasses.replace(
        five()["unknown"],
        fixes=[],
        evidence=["no place at all"],
        metrics={
            "loss": Series("NaN", "NaN", "NaN", "NaN", 3, 3, [(0.0, "NaN"), (1.0, "Infinity"), (2.0, "-Infinity")]),
            "grad_norm": Series(1e-300, 1e300, 1e-300, 1e300, None, 2, [(5.0, 1e-300), (5.0, 1e300)]),
            "lr": Series(0.0, 0.0, 0.0, 0.0, None, 2, [(-3.0, 0.0), (1e15, 0.0)]),
            "eval_x": Series(1.0, 1.0, 1.0, 1.0, None, 1, [(1.0, 1.0)]),
            "none": Series(None, None, None, None, None, 0),
        },
        ranks=[RankState(0, "followed", 3, "a"), RankState(1, "failed-first", 9, "b")],
        pipeline=a_pipeline(graph=[], failures=[], console=None),
    )
    text = Reader(html.render(odd)).text
    assert "no place at all" in text and "share no clock" in text


def test_the_libraries_are_loaded_by_the_page_only():
    code = "import sys, check_failed_run.report.html, check_failed_run.report.junit, check_failed_run.report.sarif; print({'jinja2', 'pygal'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


# ---------------------------------------------------------------------------------------------- plots and lanes


def test_the_failing_step_is_marked():
    report = five()["crash"]
    loss = plots.charts(report)[0]
    assert (loss.name, loss.axis) == ("loss", "step")
    assert f"failed at step {report.failure_point.step}" in loss.wrong and "not finite from step 71" in loss.wrong
    assert loss.near and loss.near != loss.svg
    assert 'class="series serie-3 color-3"><path' in loss.svg.replace("\n", "")
    assert "<script" not in loss.svg and "<style" not in loss.svg and "2026" not in loss.svg


def test_the_order_of_the_charts_and_their_number():
    report = five()["healthy"]
    names = plots.chosen(report)
    assert names[:4] == ["loss", "grad_norm", "lr", "throughput"] and names.index("eval_loss") < names.index("eval_ppl")
    many = dataclasses.replace(report, metrics={f"eval_{n}": report.metrics["loss"] for n in range(40)})
    assert len(plots.charts(many)) == plots.MAX_CHARTS


def test_a_step_that_the_series_cannot_know_is_not_marked():
    report = five()["crash"]
    counted = dataclasses.replace(report.metrics["loss"], points=[(float(n), 1.0 + n) for n in range(10)], went_wrong_at=None)
    (chart,) = plots.charts(dataclasses.replace(report, metrics={"loss": counted}))
    assert (chart.axis, chart.wrong) == ("record", "")


def test_values_of_many_magnitudes_get_a_logarithmic_axis():
    assert plots._limits([(0.0, 0.5), (1.0, 4e9)])[2] is True
    assert plots._limits([(0.0, 0.5), (1.0, 4.0)])[2] is False
    assert plots._limits([(0.0, -1.0), (1.0, 4e9)])[2] is False


def test_lanes_in_time():
    lanes = plots.rank_lanes(in_time())
    by_rank = {lane.rank: lane for lane in lanes.lanes}
    assert by_rank[5].when == "+0 s" and by_rank[0].when == "+30 min"
    assert by_rank[5].at < by_rank[0].at < by_rank[7].at
    assert by_rank[8].at is None and lanes.more == 0
    assert "30 min from the first stop to the last" in lanes.axis


def test_lanes_keep_who_matters():
    lanes = plots.rank_lanes(in_time(1000))
    assert len(lanes.lanes) == plots.MAX_LANES and lanes.more == 1002 - plots.MAX_LANES
    assert {5, 1000} <= {lane.rank for lane in lanes.lanes}
    assert plots.rank_lanes(in_time()[:1]) is None


# ---------------------------------------------------------------------------------------------- the DAG


def test_the_tree():
    assert dag_picture.tree(a_pipeline()) == [
        "├─ ↺ load-training-data: cached, 1 s",
        "├─ ✓ validate-schema: succeeded, 42 s (after load-training-data)",
        "├─ ✓ compute-features: succeeded, 21 min (after load-training-data)",
        "├─ ✓ for-loop-2: 12 tasks, all succeeded (after load-training-data)",
        "├─ ✕ for-loop-1: group, failed (after validate-schema, compute-features)",
        "│  ├─ ✓ train-model: succeeded, 50 min",
        "│  ├─ ✓ train-model: succeeded, 51 min",
        "│  ├─ ✕ train-model: failed first, 52 min",
        "│  ├─ ■ train-model: cancelled, 53 min",
        "│  ├─ ✓ train-model: succeeded, 54 min",
        "│  └─ ✓ train-model: succeeded, 55 min",
        "├─ ✕ report-metrics-to-the-registry: failed, 4 s (after for-loop-2, load-training-data)",
        "├─ ○ condition-1: group, not triggered (after for-loop-1)",
        "│  ├─ ○ upload-model: not triggered",
        "│  └─ ○ deploy-endpoint: not triggered (after upload-model)",
        "└─ ▶ check-failed-run: running",
    ]


def test_states_are_words_not_only_colours():
    svg = dag_picture.picture(a_pipeline())
    for words in ("✕ failed first", "✕ failed · 4 s", "○ not triggered", "■ cancelled", "↺ cached", "✓ succeeded", "12 tasks"):
        assert words in svg, words
    assert 'role="img"' in svg and "1 failed first, 1 failed, 1 cancelled" in svg
    assert dag_picture.picture(a_pipeline(graph=[])) == ""


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    import xml.etree.ElementTree as ET

    return [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for g in ET.fromstring(svg).iter("g") if g.get("class").startswith("node") for r in g.findall("rect")]


@pytest.mark.parametrize("count", [1, 7, 60])
def test_no_box_lies_on_another(count):
    wide = [GraphTask(f"w{n}", f"wide-{n}", "FAILED" if n % 2 else "SUCCEEDED", depends_on=["a"]) for n in range(count)]
    graph = [GraphTask("a", "a", "SUCCEEDED"), *wide, GraphTask("z", "z", "NOT_TRIGGERED", depends_on=["a", *(t.id for t in wide)]), *a_graph()]
    found = boxes(dag_picture.picture(a_pipeline(graph=graph)))
    assert len(found) > 8
    for n, (x, y, w, h) in enumerate(found):
        for x2, y2, w2, h2 in found[n + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_a_crowd_of_twins_has_one_edge_each_way():
    twins = [GraphTask(f"t{n}", f"probe-{n}", "NOT_TRIGGERED", depends_on=["a"]) for n in range(11)]
    graph = [GraphTask("a", "train", "FAILED", failed_first=True), *twins, GraphTask("z", "summarise", "NOT_TRIGGERED", depends_on=[t.id for t in twins])]
    svg = dag_picture.picture(a_pipeline(graph=graph))
    assert len(boxes(svg)) == 13 and svg.count('class="edge idle"') == 2 and "11 tasks side by side" in svg


def test_edges_pass_by_boxes():
    graph = [GraphTask(i, i, "SUCCEEDED", depends_on=list(after)) for i, after in (("a", ""), ("b", "a"), ("c", "b"), ("d", "ac"))]
    svg = dag_picture.picture(a_pipeline(graph=graph))
    assert svg.count('class="edge"') == 4 and "V" in svg, "the edge from a to d has a lane beside b and c"


def test_cycles_and_strangers_do_no_harm():
    graph = [
        GraphTask("a", "a", "FAILED", "b", depends_on=["c", "nowhere"]),
        GraphTask("b", "b", "FAILED", "a", depends_on=["b"]),
        GraphTask("c", "c", "WHATEVER", "missing", depends_on=["a"]),
    ]
    assert len(dag_picture.tree(a_pipeline(graph=graph))) == 3
    assert len(boxes(dag_picture.picture(a_pipeline(graph=graph)))) == 3


def test_thousands_of_tasks_are_summed_up():
    graph = [GraphTask(str(n), f"task-{n}", "FAILED" if n == 700 else "SUCCEEDED", failed_first=n == 700) for n in range(5000)]
    svg = dag_picture.picture(a_pipeline(graph=graph))
    assert "task-700" in svg and "4986 more" in svg and len(svg) < 20_000
    assert len(dag_picture.tree(a_pipeline(graph=graph))) == dag_picture.TREE_LINES + 1


# ---------------------------------------------------------------------------------------------- context


def some_facts(count: int = 30) -> LogFacts:
    facts = LogFacts("a.log")
    facts.excerpts = [[LogLine("a.log", n, 10 * n, f"line {n}", f"line {n}") for n in range(1, count)]]
    return facts


def test_context_is_what_stands_around_a_quote():
    (found,) = contexts(["a.log:10: line 10", "b.log:3: not kept", "no place"], [some_facts()])
    assert (found.input, found.line) == ("a.log", 10)
    assert found.text.split("\n") == [f"{n}: line {n}" for n in range(5, 16)]


def test_context_is_not_said_twice_and_has_an_end():
    found = contexts([f"a.log:{n}: line {n}" for n in (10, 11, 15, 1, 29)], [some_facts()])
    assert [c.line for c in found] == [10, 1, 29]
    assert len(contexts([f"a.log:{20 * n}: x" for n in range(1, 40)], [some_facts(900)])) == MAX_CONTEXTS


def test_context_holds_no_key_and_no_redrawn_bar():
    facts = some_facts()
    facts.excerpts[0][8] = LogLine("a.log", 9, 90, "QUJD" * 16, "")
    facts.excerpts[0][10:11] = [LogLine("a.log", 11, 110, "10 %", ""), LogLine("a.log", 11, 115, "99 %", "")]
    facts.excerpts[0][12] = LogLine("a.log", 12, 120, "x" * 4000 + "\x1b[31m", "")
    lines = contexts(["a.log:10: line 10"], [facts])[0].text.split("\n")
    assert "9: …" in lines and "11: 99 %" in lines and "QUJD" not in "".join(lines)
    assert all(len(line) < 310 for line in lines)


def test_the_page_folds_context():
    report = dataclasses.replace(five()["crash"], evidence=["train.log:76: here"], context=[Context("train.log", 76, "75: <b>before</b>\n76: here\n77: after")])
    text = html.render(report)
    assert "<mark>76: here</mark>" in text and "75: &lt;b&gt;before&lt;/b&gt;" in text
    assert "<b>" not in text and "Lines around it" in text


# ---------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """A headless Chromium of this machine. Without one the tests are skipped, in CI they fail."""
    problem = None
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    try:
        import selenium  # noqa: F401
    except ImportError:
        problem = "selenium is not installed"
    if chromium is None or driver is None:
        problem = "no Chromium with chromedriver on the PATH (Debian: chromium, chromium-driver)"
    if problem:
        if os.environ.get("CI"):
            pytest.fail(f"{problem}; in CI the page must be looked at", pytrace=False)
        pytest.skip(problem)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def show(browser, path: Path, text: str, width: int = 1400, *, dark: bool = False, media: str = "screen") -> None:
    path.write_text(text, encoding="utf-8")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())


def picture(browser, path: Path, width: int) -> None:
    """A screenshot of the whole page, beside the page."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))


def unfold(browser) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")


def requested(browser) -> list[str]:
    """Addresses that the page asked for and that its policy did not stop."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    stopped = {m["params"]["requestId"] for m in messages if m["method"] == "Network.loadingFailed" and m["params"].get("blockedReason") == "csp"}
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [params["request"]["url"] for params in sent if params["requestId"] not in stopped]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_looks(browser, tmp_path, kind, width):
    file = tmp_path / f"{kind}-{width}.html"
    show(browser, file, page(kind), width)
    for unfolded in (False, True):
        if unfolded:
            unfold(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        wide = browser.execute_script(
            "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .offscreen, svg, pre') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
        )
        assert wide == []
        picture(browser, file.with_suffix(".open.png" if unfolded else ".png"), width)
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]
    assert browser.find_element("css selector", "h1").is_displayed()
    top = browser.execute_script("return document.querySelector('.decision').getBoundingClientRect().bottom")
    assert top < (1000 if width == 400 else 700), "status, cause, place, first fix and decision are on the first screen"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_serious(browser, tmp_path, kind, dark):
    show(browser, tmp_path / "page.html", page(kind), 400 if dark else 1400, dark=dark)
    unfold(browser)
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script("const done = arguments[0]; axe.run(document).then(done, e => done({error: String(e)}))")
    assert "error" not in found, found
    assert len(found["passes"]) > 15
    bad = [(v["id"], v["impact"], [n["html"][:150] for n in v["nodes"]][:3]) for v in found["violations"]]
    assert bad == []


def test_axe_would_find_something(browser, tmp_path):
    broken = page("crash").replace("<html lang=\"en\">", "<html>")
    show(browser, tmp_path / "page.html", broken)
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script("const done = arguments[0]; axe.run(document).then(done)")
    assert "html-has-lang" in {v["id"] for v in found["violations"]}


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_runs_nothing(browser, tmp_path, width):
    show(browser, tmp_path / "page.html", hostile_page(), width)
    unfold(browser)
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.images.length + document.forms.length + document.querySelectorAll('iframe,object,embed').length") == 0
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_escaping_would_let_through(browser, tmp_path):
    broken = page("crash").replace("<main>", "<main><script>window.hacked=1</script><p onclick='window.hacked=1' id=trap>x</p><img src='https://evil.example/x.png' onerror='window.hacked=1'>")
    show(browser, tmp_path / "page.html", broken)
    browser.find_element("id", "trap").click()
    assert browser.execute_script("return window.hacked") is None
    assert requested(browser) == [(tmp_path / "page.html").as_uri()]
    assert len(browser.get_log("browser")) >= 3, "the browser says that it stopped them"


def test_copying(browser, tmp_path):
    report = five()["ranks"]
    show(browser, tmp_path / "page.html", html.render(report))
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    command = next(fix.command for fix in report.fixes if fix.command)
    boxes = [box for box in browser.find_elements("css selector", "[data-copy]") if command in box.text]
    button = boxes[0].find_element("tag name", "button")
    button.click()
    wait_for(lambda: button.text == "Copied")
    got = browser.execute_async_script("const done = arguments[0]; navigator.clipboard.readText().then(done, e => done(String(e)))")
    assert got == command


def wait_for(condition) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(None, 10, poll_frequency=0.05).until(lambda _: condition())


def test_in_a_sandboxed_frame(browser, tmp_path):
    """As pipeline UIs show HTML artifacts: a frame from a string, scripts allowed, no origin."""
    from html import escape

    frame = f'<!doctype html><html lang="en"><title>UI</title><iframe id="f" width="1000" height="1500" sandbox="allow-scripts" srcdoc="{escape(page("ranks"), quote=True)}"></iframe>'
    show(browser, tmp_path / "ui.html", frame)
    browser.switch_to.frame("f")
    try:
        assert browser.find_element("css selector", "h1").text == "Distributed communication failure"
        button = browser.find_element("css selector", "[data-copy] button")
        button.click()
        wait_for(lambda: button.text in ("Copied", "Press Ctrl+C"))
        view = browser.find_element("css selector", "#view-near")
        view.click()
        assert view.is_selected()
    finally:
        browser.switch_to.default_content()
    assert browser.get_log("browser") == []


def test_without_scripts(browser, tmp_path):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, tmp_path / "page.html", page("ranks"))
        assert browser.find_elements("tag name", "button") == []
        assert five()["ranks"].fixes[0].action in browser.find_element("css selector", ".verdict").text
        assert browser.find_element("css selector", "figure .whole svg").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_close_view(browser, tmp_path):
    show(browser, tmp_path / "page.html", page("crash"))
    whole, near = (browser.find_element("css selector", f"figure.two .{name}") for name in ("whole", "near"))
    assert whole.is_displayed() and not near.is_displayed()
    browser.find_element("id", "view-near").click()
    assert near.is_displayed() and not whole.is_displayed()


def test_keys(browser, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(browser, tmp_path / "page.html", page("pipeline"))
    reached = set()
    for _ in range(60):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.add(browser.execute_script("const e = document.activeElement; return e.className || e.id || e.tagName"))
    assert {"scroll", "view-whole", "SUMMARY", "A"} <= reached
    summary = browser.find_element("css selector", "section details:not([open]) > summary")
    folded = summary.find_element("xpath", "..")
    browser.execute_script("arguments[0].focus()", summary)
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    assert folded.get_attribute("open") is not None


def test_the_picture_starts_at_the_failed_task(browser, tmp_path):
    show(browser, tmp_path / "page.html", page("pipeline"), 400)
    left, right = browser.execute_script(
        "const b = document.querySelector('.dag .node.s-failed-first').getBoundingClientRect(); return [b.left, b.right]"
    )
    assert left >= 0 and right <= 400


def test_print(browser, tmp_path):
    show(browser, tmp_path / "page.html", page("crash"), dark=True, media="print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not any(button.is_displayed() for button in browser.find_elements("tag name", "button"))
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    (tmp_path / "page.pdf").write_bytes(pdf)
