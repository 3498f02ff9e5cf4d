"""The contrast of the texts on a page in a browser, as WCAG 2.2 defines it."""

# Each text with its color and those of the elements behind it; controls with their placeholder.
COLORS = """
const seen = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const behind = (element) => {
  const found = [];
  for (let one = element; one; one = one.parentElement) found.push(getComputedStyle(one).backgroundColor);
  return found;
};
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  seen.push([walker.currentNode.textContent.trim(), element instanceof SVGElement ? style.fill : style.color,
    behind(element)]);
}
document.querySelectorAll("[placeholder]").forEach((element) => seen.push(
  [element.placeholder, getComputedStyle(element, "::placeholder").color, behind(element)]));
return seen;
"""


def channels(color):
    """Return red, green, blue and opacity of a computed color (0 to 1)."""
    numbers = [float(one) for one in color[color.index("(") + 1 : -1].split(",")]
    return [one / 255 for one in numbers[:3]] + (numbers[3:] or [1.0])


def luminance(color):
    """Return the relative luminance of a color (WCAG 2.2)."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(front, behind):
    """Return the contrast of a text with the first opaque color behind it (WCAG 2.2)."""
    back = next(one for one in map(channels, behind) if one[3] == 1)
    assert all(one[3] in (0, 1) for one in map(channels, behind))
    lights = sorted((luminance(channels(front)), luminance(back)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def check_contrast(browser, dark):
    """Check the contrast of every text on the open page, dark or light; return how many there are."""
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (luminance(channels(paper)) < 0.1) == dark
    seen = browser.execute_script(COLORS)
    for text, front, behind in seen:
        assert contrast(front, behind) >= 4.5, (browser.current_url, text, front, behind)
    return len(seen)
