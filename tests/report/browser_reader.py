"""A reader of pages in Chromium, and what it measures on them."""

from pathlib import Path

from playwright.sync_api import Browser, Page

CONTRASTS = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(noscript)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg, .skip")) continue;
    const front = luminance(numbers(getComputedStyle(element).color).slice(0, 3)), back = luminance(behind(element));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    found.push([ratio, element.outerHTML.slice(0, 120)]);
  }
  return found;
}"""


class Reader:
    """Opens each report once for all tests, and collects console messages, errors, dialogs and requests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._open: dict[tuple[Path, int, str], Page] = {}
        self.troubles: list[str] = []

    def __call__(self, path: Path, width: int = 1280, scheme: str = "light") -> Page:
        key = (path, width, scheme)
        if key not in self._open:
            self._open[key] = self._opened(*key)
        return self._open[key]

    def _opened(self, path: Path, width: int, scheme: str) -> Page:
        page = self._browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 500
        )
        own, note = path.as_uri(), self.troubles.append
        page.on("console", lambda message: note(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: note(f"error: {error}"))
        page.on("dialog", lambda dialog: (note(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url == own else note(f"requests {request.url}"))
        page.goto(own)
        page.wait_for_selector("html[data-ready]")
        return page


def page_widths(page: Page) -> list[int]:
    """The width of the page, how far it scrolls sideways, and its rightmost edge."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate("window.scrollTo(500, 0)")
    page.wait_for_timeout(200)
    return page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll("section, .chart svg")].map((s) => s.getBoundingClientRect());
          return [document.documentElement.scrollWidth, window.scrollX, Math.max(...boxes.map((box) => box.right))];
        }"""
    )
