"""The page about a model: what it tells, what it keeps to itself, and the model that runs in it."""

import base64
import json
import re
import shutil
import subprocess
import sys
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, evaluate, load
from protopinv.errors import ConfigError, OutputError
from protopinv.export.text import js_array
from protopinv.model_file.saving import made_up
from protopinv.network import mean_network
from protopinv.report import live as live_room
from protopinv.report import write_report
from protopinv.report.live import TYPICAL_ROWS, first_network
from protopinv.report.page import NAMES
from protopinv.report.prototypes import number, prototypes_of

HOSTILE = "</script><img src=x onerror=alert(1)>"
TODAY = date(2026, 11, 18)
SMALL = {"effort": "quick", "max_epochs": 20, "random_state": 0}


def people(n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """A column of every kind, and names that would end a script."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.uniform(18, 80, n).round(7),
            HOSTILE: random.choice([HOSTILE, "Oslo", "Rome"], n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, n), "D"),
            "member": random.random(n) < 0.5,
        }
    )
    frame.loc[::7, "age"] = None
    says = (frame["age"].fillna(40) > 45) | (frame[HOSTILE] == "Rome")
    return frame, np.where(says, HOSTILE, "no")


@pytest.fixture(scope="module")
def table() -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**SMALL).fit(*people())


@pytest.fixture(scope="module")
def digits() -> ProtoPINVClassifier:
    X, y = load_digits(return_X_y=True)
    model = ProtoPINVClassifier(effort="quick", max_epochs=60, random_state=0)
    return model.fit(X[:900].reshape(-1, 8, 8), y[:900])


@pytest.fixture(scope="module")
def houses() -> ProtoPINVRegressor:
    X = np.random.default_rng(1).normal(size=(300, 4)) * [1, 10, 0.1, 1]
    return ProtoPINVRegressor(**SMALL).fit(X, X[:, 0] + np.tanh(X[:, 1] / 10))


def page_of(model, path: Path, *rows, **options) -> str:
    write_report(model, path, *rows, today=TODAY, **options)
    return path.read_text(encoding="utf-8")


def test_the_same_model_gives_the_same_page(table, tmp_path: Path) -> None:
    X, y = people()
    assert page_of(table, tmp_path / "m.html", X, y) == page_of(table, tmp_path / "m.html", X, y)


def test_a_page_loads_nothing(table, digits, houses, tmp_path: Path) -> None:
    for model in (table, digits, houses):
        text = page_of(model, tmp_path / "page.html")
        addresses = set(re.findall(r"https?://[^\"' )]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches
        assert "default-src 'none'" in text
        sources = re.findall(r"<(?:img|script|link|iframe)[^>]*?(?:src|href)=\"([^\"]{0,30})", text)
        assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_rows_stay_out_of_a_page_unless_they_are_asked_for(table, tmp_path: Path) -> None:
    X, y = people()
    values = [f"{value:.7g}" for value in X["age"].dropna()]
    quiet = page_of(table, tmp_path / "quiet.html", X, y)
    assert not any(f"age = {value}" in quiet for value in values)
    assert "unless it is asked for" in quiet
    told = page_of(table, tmp_path / "told.html", X, y, rows=True)
    assert sum(f"age = {value}" in told for value in values) >= 3


def test_names_of_strangers_are_text(table, tmp_path: Path) -> None:
    X, y = people()
    text = page_of(table, tmp_path / "page.html", X, y, rows=True, name=HOSTILE)
    assert HOSTILE not in text
    assert "<img src=x" not in text
    assert text.count("</script>") == 1


def test_a_model_without_prototypes_or_rows_has_a_page(table, tmp_path: Path) -> None:
    table.save(tmp_path / "small.safetensors", bank=False, examples=False)
    text = page_of(load(tmp_path / "small.safetensors"), tmp_path / "page.html")
    assert "<h2>Training</h2>" in text
    assert "Nearest prototypes" not in text


def test_several_labels_have_a_page(tmp_path: Path) -> None:
    X = np.random.default_rng(2).normal(size=(200, 3))
    labels = (X[:, :2] > 0).astype(int)
    model = ProtoPINVClassifier(**SMALL).fit(X, labels)
    text = page_of(model, tmp_path / "page.html", X, labels)
    assert "micro f1" in text
    assert "label 1" in text


def test_a_page_has_the_numbers_of_evaluate_and_score(table, houses, tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).normal(size=(300, 4)) * [1, 10, 0.1, 1]
    for model, (X, y), first in (
        (table, people(), "accuracy"),
        (houses, (numbers, numbers[:, 0]), "r2"),
    ):
        text = page_of(model, tmp_path / "page.html", X, y)
        cells = dict(re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", text))
        result = evaluate(model, X, y)
        for name, value in vars(result).items():
            if isinstance(value, float):
                assert cells[NAMES.get(name, name.replace("_", " "))] == number(value)
        assert getattr(result, first) == pytest.approx(model.score(X, y), abs=1e-12)


def test_charts_take_their_colours_from_the_page_and_names_as_they_are(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, "$x$", "是")
    frame = pd.DataFrame(X, columns=["price $ in $", "价格"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ProtoPINVClassifier(**SMALL).fit(frame, y)
        text = page_of(model, tmp_path / "page.html", frame, y)
    charts = re.findall(r'<svg class="chart".*?</svg>', text, flags=re.DOTALL)
    assert len(charts) >= 3
    for chart in charts:
        assert "var(--s0)" in chart
        assert not re.search(r"#[0-9a-f]{6}", chart)
        assert "<title>" in chart
        assert "<text" in chart


def test_targets_need_rows(houses, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs rows and their targets"):
        write_report(houses, tmp_path / "page.html", np.zeros((3, 4)))
    assert not (tmp_path / "page.html").exists()


def test_a_page_needs_a_folder(houses, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="existing folder"):
        write_report(houses, tmp_path / "nowhere" / "page.html")


def test_a_stem_sees_its_pictures_as_the_prototypes() -> None:
    """Nearer than a grey image by far, though a stem forgets much of what it sees."""
    random = np.random.default_rng(0)
    bright = random.integers(0, 2, 200)
    X = random.random((200, 16, 16)) * 0.2
    X[bright == 1, 4:12, 7:9] += 0.8
    X[bright == 0, 7:9, 4:12] += 0.8
    model = ProtoPINVClassifier(**SMALL).fit(X, bright)
    bank = model.bank_.member(0)
    wanted = model.features_.unproject(bank.inputs.double()[:6])
    assert bank.scale is None

    def off(images: np.ndarray) -> float:
        seen = model.front_.features(torch.from_numpy(images.reshape(len(images), -1)))
        return float(((seen - wanted) * model.features_.scale.double()).square().mean())

    assert off(prototypes_of(model, chosen=range(6)).values) < 0.5 * off(
        np.full((6, 16, 16), X.mean())
    )


def test_the_first_bank_alone_is_as_sure_as_the_mean(table) -> None:
    """Its last layer is that share of the mean's which belongs to it."""
    alone, n = first_network(table.model_), table.bank_.n_members
    whole = table.network_.weights[-1]
    rows = slice(1, len(alone.weights[-1]))
    assert (alone.weights[-1][rows] / n - whole[rows]).abs().max() < 1e-9 * whole.abs().max()
    assert mean_network([alone, alone]).sizes[0] == table.network_.sizes[0]


def test_the_first_bank_of_a_model_that_went_on_is_its_own() -> None:
    """After a new class the network looks at fewer directions, and so must the bank by itself."""
    X, y = load_digits(return_X_y=True)
    model = ProtoPINVClassifier(effort="quick", max_epochs=15, n_members=1, random_state=0)
    model.set_params(early_stopping=False).fit(X[y < 9], y[y < 9]).partial_fit(X[y == 9], y[y == 9])
    rows = torch.from_numpy(X[:50])
    rows = rows if model.front_ is None else model.front_.features(rows)
    torch.testing.assert_close(first_network(model.model_)(rows), model.network_(rows))


def test_the_command_writes_a_page_and_says_how_large(table, tmp_path: Path) -> None:
    X, y = people(60)
    X.assign(says=y).to_csv(tmp_path / "new.csv", index=False)
    table.save(tmp_path / "model.safetensors")
    command = [sys.executable, "-m", "protopinv", "report", "model.safetensors", "--json"]
    done = subprocess.run(
        [*command, "--data", "new.csv", "--target", "says", "-o", "page.html"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["bytes"] == (tmp_path / "page.html").stat().st_size < 1_500_000
    failed = subprocess.run(
        [*command, "--data", "new.csv"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 3
    assert "--target" in failed.stderr
    assert not (tmp_path / "report.html").exists()


# ---------------------------------------------------------------- in a real browser

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
in_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and its driver"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.add_argument("--window-size=1100,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser, path: Path, within: float = 1e-6) -> None:
    """The page, which has tested itself and complained of nothing."""
    browser.get(path.as_uri())
    difference = browser.find_element("id", "selftest").get_attribute("data-difference")
    assert float(difference) < within
    assert browser.get_log("browser") == []


def answer(browser) -> str:
    return browser.find_element("id", "answer").text


@in_browser
def test_a_slider_moves_a_prediction(browser, houses, tmp_path: Path) -> None:
    page_of(houses, tmp_path / "page.html")
    opened(browser, tmp_path / "page.html")
    before = answer(browser)
    rows = made_up(houses.model_, TYPICAL_ROWS).double().numpy()
    typical = np.median(rows, axis=0)
    assert float(before) == pytest.approx(houses.predict([typical])[0], rel=1e-3, abs=1e-3)
    # the column that counts most stands first; a step to the right is a larger number
    slider = browser.find_element("css selector", "#controls input[type=range]")
    slider.send_keys("\ue010")  # End: the highest value
    high = typical.copy()
    place = int(slider.get_attribute("id").removeprefix("control-"))
    high[place] = np.quantile(rows[:, place], 0.99)
    assert answer(browser) != before
    assert float(answer(browser)) == pytest.approx(houses.predict([high])[0], rel=1e-2)


@in_browser
def test_a_drawn_digit_is_classified(browser, digits, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page_of(digits, tmp_path / "page.html")
    opened(browser, tmp_path / "page.html")
    assert answer(browser) == "Draw something"
    pad = browser.find_element("id", "pad")
    side = pad.size["width"]
    drawing = ActionChains(browser, duration=10).move_to_element_with_offset(pad, 0, -0.45 * side)
    drawing.click_and_hold().move_to_element_with_offset(pad, 0, 0.45 * side).release().perform()
    assert answer(browser) == "1"
    assert len(browser.find_elements("css selector", "#nearest img")) == 5
    browser.find_element("id", "clear").click()
    assert answer(browser) == "Draw something"


@in_browser
def test_hostile_names_are_shown_and_run_nothing(browser, table, tmp_path: Path) -> None:
    X, y = people()
    page_of(table, tmp_path / "page.html", X, y, rows=True, name=HOSTILE)
    opened(browser, tmp_path / "page.html")
    assert browser.find_element("tag name", "h1").text == HOSTILE
    assert HOSTILE in browser.find_element("id", "controls").text
    assert browser.find_elements("css selector", "img[src=x]") == []
    assert answer(browser) in (HOSTILE, "no")


@in_browser
def test_a_pick_list_moves_a_prediction(browser, table, tmp_path: Path) -> None:
    from selenium.webdriver.support.select import Select

    page_of(table, tmp_path / "page.html")
    opened(browser, tmp_path / "page.html")
    place = [column.name for column in table.table_.columns].index(HOSTILE)
    cities = Select(browser.find_element("id", f"control-{place}"))
    row = {c.name: c.typical for c in table.table_.columns}
    found = {}
    for city in ("Oslo", "Rome"):
        cities.select_by_visible_text(city)
        found[city] = browser.find_element("css selector", "#bars tr td:last-child").text
        frame = pd.DataFrame([row | {HOSTILE: city}])
        frame["since"] = pd.to_datetime(frame["since"], unit="D")
        frame["member"] = frame["member"] > 0.5
        expected = table.predict_proba(frame)[0, 0]
        assert float(found[city].split()[0]) == pytest.approx(100 * expected, abs=0.051)
    assert found["Oslo"] != found["Rome"]


@in_browser
def test_a_large_mean_runs_its_first_bank(
    browser, digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(page_of(digits, tmp_path / "whole.html"))
    monkeypatch.setattr(live_room, "MOST_SCRIPT", 10_000)
    text = page_of(digits, tmp_path / "page.html")
    assert len(text) < 0.6 * whole
    assert "This page runs the first of them" in text
    assert "shorter(" in text
    opened(browser, tmp_path / "page.html", within=1e-4)


def test_shorter_numbers_have_five_digits() -> None:
    numbers = np.random.default_rng(0).normal(size=1000).astype("<f4") * 10.0 ** np.arange(
        -5, 5, 0.01
    )
    packed = np.frombuffer(
        base64.b64decode(js_array(numbers, shorter=True).split('"')[1]), np.uint8
    ).reshape(-1, 3)
    read = np.pad(packed, ((0, 0), (1, 0))).view("<f4").ravel()
    np.testing.assert_allclose(read, numbers, rtol=2**-16)
