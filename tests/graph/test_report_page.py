"""The page of a report in a real Chromium: what it shows, its keys, its themes, and no network."""

import json

import browser
import pipelines
import pytest
from report_rows import Row
from small_graphs import SquareMean

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.memory_traffic import readable

pytestmark = pytest.mark.skipif(
    browser.executable() is None,
    reason="needs a Chromium: apt-get install chromium (.ci/run does that where it can)",
)

HOSTILE = "<img src=x onerror=alert(1)></script>"


SEARCHED = [
    Row("data 2 x pipeline 2", 1.5e-3, 4096, "1f1b, 8 micro-batches"),
    Row("tensor 4", None, None, HOSTILE),
]


@pytest.fixture(scope="module")
def page():
    """One browser for all tests; none of them may leave an error or a request behind."""
    with browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def graph():
    with virtual_world():
        model = pipelines.Model(pipelines.Spec(((0, 1), (2, 3)), (0, 1)), staged=True)
        graph = pipelines.Train(model, 8, "1f1b")
        graph._compile(*pipelines.data(model, 32))
        yield graph


@pytest.fixture(scope="module")
def plan(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "plan.html"
    graph.report(path, "h100", tokens=96, searched=SEARCHED)
    return path


@pytest.fixture
def shown(page, plan):
    yield opened(page, plan)
    check_quiet(page, plan)


def opened(page, path):
    page.errors.clear()
    page.requests.clear()
    page.media(scheme="light")
    page.size(1400, 900)
    page.open(path)
    return page


def check_quiet(page, path):
    page.settle()
    assert page.errors == []
    assert page.requests == [path.resolve().as_uri()]


def text(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent")


def texts(page, selector):
    return page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )


def values(page, selector):
    script = f"[...document.querySelectorAll({json.dumps(selector)})].map(e => +e.dataset.value)"
    return page.run(script)


def box(page, selector):
    """Left, top, width and height."""
    script = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
    return page.run(f"(r => [r.left, r.top, r.width, r.height])({script})")


def focus(page, name):
    page.run(f"document.getElementById({name!r}).focus()")


def peaks(graph):
    """Of each group, with what the driver and the communicators take."""
    summary, groups = graph.summary(), graph.simulate("h100").groups
    return [summary.group(group.ranks[0]).peak + group.reserved for group in groups]


def test_the_numbers_are_those_of_the_simulation(shown, graph):
    wanted = graph.simulate("h100", tokens=96)
    peak = max(peaks(graph))
    for name, value in {
        "step-time": wanted.step_time,
        "tokens": wanted.tokens_per_second,
        "mfu": wanted.mfu,
        "bubble": wanted.bubble,
        "peak": peak,
        "received": sum(wanted.received.values()),
        "count": sum(p.numel() for p in graph.model.parameters()),
    }.items():
        assert values(shown, f"#{name}") == [value]
    lines = dict(line.split(maxsplit=1) for line in str(wanted).splitlines()[2:5])
    assert text(shown, "#tokens") == lines["tokens/s"]
    assert text(shown, "#mfu") == lines["MFU"]
    assert text(shown, "#bubble") == lines["bubble"]
    assert f"step time   {text(shown, '#step-time')}".replace("µ", "u") in str(wanted)
    assert text(shown, "#peak") == readable(peak)
    assert text(shown, "#subtitle") == "4 ranks on DGX H100 · 1f1b, 2 stages · 8 micro-batches"
    assert text(shown, "h1") == "Train"
    times = [
        number
        for group in wanted.groups
        for number in (group.compute, group.communication, group.waiting)
    ]
    rows = values(shown, "#groups td[data-value]")
    assert [rows[0:3], rows[5:8]] == [times[:3], times[3:]]
    assert sum(values(shown, "#links td:nth-child(3)")) == sum(wanted.received.values())


def test_every_section_has_its_table(shown, graph):
    assert texts(shown, "#sections a") == [
        "Timeline", "Memory", "Ranks", "Communication", "Parameters", "Search", "Hardware",
    ]  # fmt: skip
    names = [variable.value.name for variable in graph.program.variables]
    assert texts(shown, "#layouts tbody th") == names
    assert texts(shown, "#candidates tbody th") == ["data 2 x pipeline 2", "tensor 4"]
    assert texts(shown, "#candidates td.text")[1] == HOSTILE  # as text, not as markup
    assert shown.run("document.querySelector('#candidates img')") is None
    assert texts(shown, "#levels tbody th") == ["NVLink", "InfiniBand"]
    assert len(texts(shown, "#curves figure")) == 5
    peak = max(peaks(graph))
    assert sum(values(shown, "#live td[data-value]")) == peak


def test_keys_walk_through_the_timeline(shown, graph):
    simulation = graph.simulate("h100", tokens=96)
    line = simulation.timeline
    focus(shown, "timeline-view")
    first = [task.name for task in line.tasks if task.rank == 0 and task.stream == "compute"]
    assert text(shown, "#event h3") == "No event selected"
    for name in first[:4]:
        shown.press("ArrowRight")
        assert text(shown, "#event h3") == name
    shown.press("ArrowLeft")
    assert text(shown, "#event h3") == first[2]
    shown.press("ArrowDown")
    assert "communication" in text(shown, "#event dl")
    shown.press("ArrowDown")
    assert "stage 1" in text(shown, "#live-title")  # memory follows
    assert text(shown, "#event h3")[1:3] == "1."
    shown.press("Escape")
    assert text(shown, "#event h3") == "No event selected"


def test_copies_to_the_host_have_a_row(page, tmp_path):
    with virtual_world():
        spec = pipelines.Spec(((0, 1), (2, 3)), (0, 1), offloaded=(0, 1))
        graph = pipelines.Train(pipelines.Model(spec, staged=True), 8, "1f1b")
        graph._compile(*pipelines.data(graph.model, 32))
        graph.report(tmp_path / "plan.html", "h100")
    opened(page, tmp_path / "plan.html")
    note = "what they communicate, and copy to the host and back."
    assert text(page, "#timeline-note").endswith(note)
    assert "copies" in texts(page, "#timeline-legend li")
    focus(page, "timeline-view")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.press(key)
    assert text(page, "#event h3").startswith("copies of ")
    assert "copies" in text(page, "#event dl")
    check_quiet(page, tmp_path / "plan.html")


def test_keys_and_buttons_zoom(shown):
    assert text(shown, "#window") == ""
    focus(shown, "timeline-view")
    before = shown.screenshot()
    shown.press("+")
    first = text(shown, "#window")
    assert " to " in first
    assert shown.screenshot() != before
    shown.press("ArrowRight", browser.SHIFT)
    assert text(shown, "#window") != first
    shown.press("0")
    assert text(shown, "#window") == ""
    shown.press("ArrowRight")
    shown.press("Enter")
    assert " to " in text(shown, "#window")
    shown.run("document.getElementById('zoom-fit').click()")
    assert text(shown, "#window") == ""
    shown.run("document.getElementById('zoom-in').click()")
    assert text(shown, "#window") != ""
    shown.run("document.getElementById('zoom-out').click()")
    assert text(shown, "#window") == ""


def test_a_pointer_selects_drags_and_zooms(shown, graph):
    left, top, width, _ = box(shown, "#timeline-view")
    x, y = left + 168 + 0.012 * (width - 178), top + 40  # in the first forward
    shown.mouse("mouseMoved", x, y)
    assert text(shown, "#tip b") == "F0.0"
    assert "forward" in text(shown, "#tip")
    shown.click(x, y)
    assert text(shown, "#event h3") == "F0.0"
    shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-480, modifiers=2)
    zoomed = text(shown, "#window")
    assert " to " in zoomed
    shown.mouse("mousePressed", left + 500, y, button="left", buttons=1)
    shown.mouse("mouseMoved", left + 400, y, button="left", buttons=1)
    shown.mouse("mouseReleased", left + 400, y, button="left")
    assert text(shown, "#window") != zoomed


def test_tab_reaches_everything_and_shows_where_it_is(shown):
    places, rings = [], []
    for _ in range(40):
        shown.press("Tab")
        places.append(
            shown.run("(e => e.id || e.name || e.getAttribute('aria-label') || e.textContent)"
                      "(document.activeElement)")
        )  # fmt: skip
        rings.append(
            shown.run(
                "(e => [e, e.nextElementSibling].some("
                "x => x && getComputedStyle(x).outlineStyle !== 'none'))(document.activeElement)"
            )
        )
    for wanted in ("theme", "zoom-out", "timeline-view", "memory-group", "memory-view", "search"):
        assert wanted in places, places
    assert all(rings[: places.index("search")])


def background(page):
    return page.run("getComputedStyle(document.body).backgroundColor")


def test_themes(shown):
    light = background(shown)
    shown.media(scheme="dark")
    dark = background(shown)
    assert brightness(dark) < 60 and brightness(light) > 200
    shown.run("document.querySelector('[name=theme][value=light]').click()")
    assert background(shown) == light
    shown.run("document.querySelector('[name=theme][value=dark]').click()")
    shown.media(scheme="light")
    assert background(shown) == dark
    focus_ = "document.querySelector('[name=theme]:checked').focus()"
    shown.run(focus_)
    shown.press("ArrowLeft")  # the radio before it
    assert background(shown) == light


def brightness(color):
    return sum(map(int, color[4:-1].split(",")[:3])) / 3


CONTRAST = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number)
    .map((v, i) => (text.startsWith("color(srgb") && i < 3 ? 255 * v : v));
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("main *, nav a, .brand, .switch span")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => e.checkVisibility())
    .map((e) => {
      const [a, b] = [rgb(getComputedStyle(e).color), behind(e)].map(light);
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + " " + e.textContent];
    })
    .sort((a, b) => a[0] - b[0])[0];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(shown, scheme):
    shown.media(scheme=scheme)
    lowest, where = shown.run(CONTRAST)
    assert lowest >= 4.5, where


def test_parameters_are_searched_and_sorted(shown):
    every = texts(shown, "#layouts tbody th")
    focus(shown, "search")
    shown.type("blocks.1 bias")
    assert texts(shown, "#layouts tbody th") == [n for n in every if "1.bias" in n]
    assert text(shown, "#found") == f"1 of {len(every)}"
    shown.run("(e => { e.value = ''; e.dispatchEvent(new Event('input')); })"
              "(document.getElementById('search'))")  # fmt: skip
    button = "document.querySelector('#layouts [data-key=nbytes]')"
    for direction in ("ascending", "descending"):
        shown.run(f"{button}.click()")
        assert shown.run(f"{button}.parentElement.ariaSort") == direction
        found = values(shown, "#layouts td:nth-last-child(2)")
        assert found == sorted(found, reverse=direction == "descending")
    assert len(found) == len(every)


def test_memory_has_a_cursor(shown, graph):
    focus(shown, "memory-view")
    assert text(shown, "#moment h3") == "At the peak"
    shown.press("ArrowLeft")
    assert text(shown, "#moment h3").startswith("At ")
    assert text(shown, "#moment h3") != "At the peak"
    shown.press("ArrowRight")
    assert text(shown, "#moment h3") == "At the peak"
    shown.run("(e => { e.value = '0'; e.dispatchEvent(new Event('change')); })"
              "(document.getElementById('memory-group'))")  # fmt: skip
    peak, _ = peaks(graph)
    assert text(shown, "#live-title") == f"At the peak of stage 0, ranks 0-1: {readable(peak)}"


# The lines of the element that a selector finds, as they are laid out.
LINES = """(selector => {
    const range = document.createRange(), lines = [];
    const found = document.querySelector(selector);
    const walker = document.createTreeWalker(found, NodeFilter.SHOW_TEXT);
    let last = null;
    while (walker.nextNode())
        for (let at = 0; at < walker.currentNode.length; at += 1) {
            range.setStart(walker.currentNode, at);
            range.setEnd(walker.currentNode, at + 1);
            const { top } = range.getBoundingClientRect();
            if (last === null || top > last + 4) { lines.push(""); last = top; }
            lines[lines.length - 1] += range.toString();
        }
    return lines;
})"""


def test_lines_end_between_the_words_of_a_name(page, tmp_path):
    """In the narrow box next to the memory, which says at which step the peak is."""
    with virtual_world():
        p = flow.placement("cpu", [0])
        head = nn.Linear(4, 64, placement=p, sbp=flow.sbp.broadcast)
        graph = nn.Graph.trace(lambda x: flow.log_softmax(head(x), 1).mean())
        graph(flow.ones(512, 4, placement=p, sbp=flow.sbp.broadcast))
        graph.report(tmp_path / "plan.html", "h100")
    opened(page, tmp_path / "plan.html")
    lines = page.run(f"{LINES}('#moment dd:last-child')")
    assert "".join(lines).startswith("log_softmax") and len(lines) > 1
    assert all(line[-1] in "_., " for line in lines[:-1])
    check_quiet(page, tmp_path / "plan.html")


@pytest.mark.parametrize("width", [360, 768, 1024, 1920])
def test_it_fits_every_width(shown, width):
    shown.size(width, 800)
    assert shown.run("document.documentElement.scrollWidth") <= width
    _, _, wide, high = box(shown, "#timeline-view canvas")
    assert 0 < wide <= width and high > 40


def test_print_is_light_and_whole(shown):
    shown.media(scheme="dark")
    shown.run("dispatchEvent(new Event('beforeprint'))")
    shown.media("print", "dark")
    ink = shown.run("getComputedStyle(document.body).color")
    assert brightness(ink) < 60
    assert not shown.run("document.querySelector('.bar').checkVisibility()")
    assert shown.run("[...document.querySelectorAll('.scroll')]"
                     ".every(e => e.scrollHeight <= e.clientHeight + 1)")  # fmt: skip
    shown.run("dispatchEvent(new Event('afterprint'))")
    shown.media(scheme="dark")
    assert brightness(background(shown)) < 60


DRAWN = """((names) => {
  const canvas = document.querySelector("#timeline-view canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  const wanted = names.map((name) => parseInt(style.getPropertyValue(`--${name}`).slice(1), 16));
  const found = names.map(() => 0);
  for (let i = 0; i < data.length; i += 4) {
    const at = wanted.indexOf(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    if (at >= 0) found[at] += 1;
  }
  return found;
})(["forward", "backward", "update", "send", "gold"])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_timeline_is_drawn(shown, scheme):
    """Its pixels have the colors of the kinds that the legend names."""
    shown.media(scheme=scheme)
    *drawn, other = shown.run(DRAWN)
    assert min(drawn) > 100 and other == 0


def test_reports_without_hardware_and_without_stages(page, graph, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    graph.report(tmp_path / "plan.html")
    opened(page, tmp_path / "plan.html")
    assert text(page, "#subtitle") == "4 ranks · 1f1b, 2 stages · 8 micro-batches"
    assert page.run("document.getElementById('step-time')") is None
    focus(page, "timeline-view")
    page.press("ArrowRight")
    assert text(page, "#event h3") == "F0.0"
    assert "1 unit" in text(page, "#event dl")
    check_quiet(page, tmp_path / "plan.html")
    with virtual_world():
        model = nn.Linear(4, 4)
        alone = SquareMean(model, flow.optim.SGD(model.parameters(), lr=0.1))
        alone._compile(flow.randn(2, 4))
        for hardware, memory in (("h100", True), (None, True), ("h100", False), (None, False)):
            path = tmp_path / f"{hardware}-{memory}.html"
            alone.report(path, hardware, memory=memory)
            opened(page, path)
            assert text(page, "h1") == "SquareMean"
            check_quiet(page, path)


@pytest.mark.parametrize("hardware", ["h100", None])
def test_reports_of_nearly_nothing(page, tmp_path, monkeypatch, hardware):
    monkeypatch.setenv("HOME", str(tmp_path))
    with virtual_world():
        for number, build in enumerate((lambda x: x, flow.relu)):
            graph = nn.Graph.trace(build)
            graph(flow.ones(2))
            graph.report(tmp_path / f"{number}.html", hardware)
            opened(page, tmp_path / f"{number}.html")
            assert "Parameters" not in texts(page, "#sections a")
            check_quiet(page, tmp_path / f"{number}.html")
