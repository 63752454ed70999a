//! The HTML report in a browser, on narrow and wide screens, light, dark and on paper: no error in its console, tables
//! that sort, plots that zoom, nothing cut, no text that is hard to read, no network request. Needs Chromium (Debian:
//! `apt-get install chromium`). If it is missing the test says so, and fails if `CI` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Widths of screens in CSS pixels: a telephone, a small window, a laptop, a large screen.
const WIDTHS: [u32; 4] = [360, 500, 1280, 1920];
/// A4 without its margins, in CSS pixels.
const SHEET: u32 = 703;

/// What both scripts use: checks with their results, and the contrast of all text with what lies behind it.
const CHECKS: &str = r#"
const said = [];
const check = (what, ok) => said.push((ok ? "ok " : "FAILED ") + what);
window.addEventListener("error", e => check("script error: " + e.message, false));
const rgb = color => color.match(/[\d.]+/g).map(Number);
const light = color => rgb(color).slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (rgb(color)[3] !== 0) return color;
  }
  return "rgb(255, 255, 255)";
};
const faint = () => {
  const found = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.getClientRects().length || ![...element.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [getComputedStyle(element).color, behind(element)].map(light).sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.add(`${element.tagName}.${element.className} ${contrast.toFixed(1)}`);
  }
  return [...found].join(", ");
};
const legible = () => { const text = faint(); check("contrast " + text, !text); };
const answer = () => parent.postMessage([location.search.slice(1), said.join("; ")], "*");
"#;

/// The page on paper: its rules for print hold for all media, and it is as wide as a sheet.
const ON_PAPER: &str = r#"
window.dispatchEvent(new Event("beforeprint"));
check("nothing is folded", [...document.querySelectorAll("details.finding, details.ladder")].every(d => d.open));
const cut = [...document.querySelectorAll("table, figure, dl, p, pre")].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1);
check("all fits the sheet: " + cut.map(e => e.tagName + " " + (e.caption?.textContent ?? e.className)).join(", "), !cut.length);
check("nothing scrolls", [...document.querySelectorAll(".scroll")].every(box => getComputedStyle(box).overflowX === "visible"));
check("no buttons", [...document.querySelectorAll("nav, .tools, .search")].every(e => !e.getClientRects().length));
legible();
answer();
"#;

/// Actions of a user on the page, with the expected results.
const ACTIONS: &str = r#"
legible();
const tables = [...document.querySelectorAll("table.data")];
check("tables", tables.length >= 3);
for (const table of tables) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    const button = head.querySelector("button");
    if (!button) return;
    const cells = () => [...table.tBodies[0].rows].map(r => r.cells[index]).map(c => c.dataset.v === undefined ? c.textContent.trim() : Number(c.dataset.v));
    const before = cells().length;
    button.click();
    const down = cells();
    button.click();
    const up = cells();
    const sorted = (list, sign) => list.every((v, i) => i === 0 || typeof v !== typeof list[i - 1] || (v > list[i - 1] ? 1 : v < list[i - 1] ? -1 : 0) * sign >= 0);
    if (down.length !== before || !sorted(down, -1) || !sorted(up, 1)) check("sorting by " + head.textContent + ": " + down + " / " + up, false);
  });
}
check("sorting", true);
const plots = [...document.querySelectorAll("figure.plot")];
check("plots", plots.length >= 3);
for (const plot of plots) {
  const area = plot.querySelector(".area"), svg = area.querySelector("svg"), box = () => svg.getAttribute("viewBox").split(" ").map(Number);
  const name = plot.querySelector("figcaption").firstChild.textContent;
  const rect = area.getBoundingClientRect();
  const at = (type, part) => area.dispatchEvent(new PointerEvent(type, { clientX: rect.left + rect.width * part, clientY: rect.top + 5, button: 0, bubbles: true }));
  const ticks = () => [...plot.querySelectorAll(".x span")].map(s => s.textContent).join(" ");
  const first = ticks();
  if (rect.width < 200 || rect.height < 80) check(name + " is too small: " + rect.width + " x " + rect.height, false);
  at("pointerdown", 0.25); at("pointermove", 0.5); at("pointerup", 0.5);
  const zoomed = box();
  if (Math.abs(zoomed[0] - 250) > 5 || Math.abs(zoomed[2] - 250) > 5) check(name + " does not zoom: " + zoomed, false);
  if (ticks() === first) check(name + " keeps its ticks", false);
  plot.querySelector("[data-zoom=in]").click();
  if (Math.abs(box()[2] - 125) > 5) check(name + " does not zoom in: " + box(), false);
  plot.querySelector("[data-zoom=out]").click();
  area.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  if (box()[2] !== 1000) check(name + " does not come back: " + box(), false);
  if (!plot.querySelector(".read").textContent.includes(":")) check(name + " reads nothing", false);
  if ([...svg.querySelectorAll("path")].every(p => !p.getAttribute("d"))) check(name + " is empty", false);
}
check("zooming", true);
check("fits the screen", document.documentElement.scrollWidth <= window.innerWidth);
for (const box of document.querySelectorAll(".scroll")) {
  if (box.scrollWidth > box.clientWidth + 1) check("a table is cut: " + box.getAttribute("aria-label") + " " + box.scrollWidth + " > " + box.clientWidth, false);
}
check("landmarks", document.querySelector("main") && [...document.querySelectorAll("th")].every(t => t.scope === "col" || t.scope === "row") && [...document.querySelectorAll("table.data")].every(t => t.caption));
const findings = () => [...document.querySelectorAll("details.finding:not(.hidden)")].length;
const search = document.getElementById("search");
const typed = text => { search.value = text; search.dispatchEvent(new Event("input")); };
const before = [findings(), document.querySelectorAll("table.data tbody tr").length];
typed("no such text anywhere");
check("search hides", findings() === 0 && document.querySelectorAll("table.data tbody tr").length === 0);
typed("");
check("search shows again", findings() === before[0] && document.querySelectorAll("table.data tbody tr").length === before[1]);
const links = [...document.querySelectorAll("main a")];
check("links lead somewhere", links.length > 0 && links.every(a => document.getElementById(a.getAttribute("href").slice(1))));
const referred = [...document.querySelectorAll("section[id=frames] tbody tr")];
const timeless = referred.filter(row => !row.cells[1].textContent.trim()).map(row => row.id);
check("frames have times " + timeless.join(" "), referred.length > 0 && !timeless.length);
const last = [...document.querySelectorAll("table.data")].pop(), shown = () => last.tBodies[0].rows.length;
if (document.querySelector("script.more")) {
  check("rows come as they are scrolled to", shown() < 1000);
  location.hash = 'frame-900400';
  window.dispatchEvent(new Event("hashchange"));
  check("a link leads to a row that was not made", document.getElementById("frame-900400") !== null);
  typed("row 777 of");
  check("search finds rows that were not made", shown() === 1 && last.tBodies[0].rows[0].textContent.includes("row 777 of many"));
  typed("");
  last.tHead.rows[0].cells[0].querySelector("button").click();
  check("sorting sees rows that were not made", last.tBodies[0].rows[0].id === "frame-900999");
  check("names stay text", !last.querySelector("img"));
}
window.dispatchEvent(new Event("beforeprint"));
check("all rows on paper", !document.querySelector("script.more") || shown() > 1000);
check("nothing is folded on paper", [...document.querySelectorAll("details.finding, details.ladder")].every(d => d.open));
check("no element was made of a name", !document.querySelector("img, iframe, object, link, a[href^='http'], a[href^='javascript']"));
answer();
"#;

fn chromium() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .flat_map(|p| ["chromium", "chromium-browser", "google-chrome"].map(|n| p.join(n)))
        .find(|p| p.is_file())
}

/// Opens a page of frames, each with a page of this folder, its width and the name by which it answers. Returns the
/// answers by name, and the log.
fn browse(chromium: &Path, folder: &Path, frames: &[(&str, u32)], dark: bool) -> (Vec<(String, String)>, String) {
    let all: String = frames
        .iter()
        .map(|(page, width)| format!("<iframe width={width} height=900 src=\"{page}?{page} {width}\"></iframe>"))
        .collect();
    let script = "window.addEventListener('message', e => { const p = document.createElement('pre'); p.textContent = \
        e.data.join('|'); \
                  document.body.append(p); });";
    let outer = folder.join("outer.html");
    fs::write(&outer, format!("<!doctype html><body><script>{script}</script>{all}")).expect("a file");
    let profile = tempfile::tempdir().expect("a folder");
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--disable-sync", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", outer.display()))
        .output()
        .expect("Chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = |part: &str| {
        let (name, said) = part.split("</pre>").next().unwrap_or_default().split_once('|')?;
        Some((name.replace("%20", " "), said.to_owned()))
    };
    (dom.split("<pre>").skip(1).filter_map(answer).collect(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The page with a thousand more rows in its last table.
fn with_many_rows(html: &str) -> String {
    let end = html.rfind("</table>\n").expect("a table") + "</table>\n".len();
    let row = |n: u32| {
        let what = format!("row {n} of many \\u003cb>&lt;img src=x>\\u003c/b>");
        format!(
            "[\"frame-900{n:03}\",[[\"\",900{n:03}.0,\"900,{n:03}\"],[\"\",null,\"\"],[\"\",null,\"\"],[\"l\",null,\"{what}\"]]]"
        )
    };
    let rows: Vec<String> = (0..1000).map(row).collect();
    format!(
        "{}<script type=\"application/json\" class=\"more\">[{}]</script>\n{}",
        &html[..end],
        rows.join(","),
        &html[end..]
    )
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(chromium) = chromium() else {
        assert!(std::env::var_os("CI").is_none(), "Chromium is missing: apt-get install chromium");
        eprintln!("SKIPPED: the HTML report was not tried in a browser, for there is none: apt-get install chromium");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for sample in ["smb-roce-loss", "nfs-iwarp-v42"] {
        let capture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(sample).join(format!("{sample}.pcap"));
        let page = folder.path().join(format!("{sample}.html"));
        let status = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(["analyze", "--format", "html", "-o"])
            .arg(&page)
            .arg(&capture)
            .status()
            .expect("the binary runs");
        assert!(status.success());
        let html = fs::read_to_string(&page).expect("the report");
        for reference in ["src=", "href=\"http", "@import", "url("] {
            assert!(!html.contains(reference), "{sample}: the page refers to something: {reference}");
        }
        // more rows than are markup from the beginning, as a capture of thousands of connections has them
        let html = if sample == "smb-roce-loss" { with_many_rows(&html) } else { html };
        let with = |script: &str| html.replace("</body>", &format!("<script>{CHECKS}{script}</script></body>"));
        let paper = with(ON_PAPER).replace("@media print", "@media all").replace("@media screen", "@media not all");
        let (on_screen, on_paper) = (format!("{sample}.html"), format!("{sample}-paper.html"));
        fs::write(folder.path().join(&on_screen), with(ACTIONS)).expect("a file");
        fs::write(folder.path().join(&on_paper), paper).expect("a file");
        let frames: Vec<(&str, u32)> =
            WIDTHS.iter().map(|width| (&*on_screen, *width)).chain([(&*on_paper, SHEET)]).collect();
        for dark in [false, true] {
            let (answers, log) = browse(&chromium, folder.path(), &frames, dark);
            let names: Vec<&str> = answers.iter().map(|(name, _)| &**name).collect();
            for (page, width) in &frames {
                assert!(
                    names.contains(&&*format!("{page} {width}")),
                    "{page}, {width}, dark {dark}: did not come to its end: {names:?}\n{log}"
                );
            }
            for (name, said) in &answers {
                assert!(said.contains("ok ") && !said.contains("FAILED"), "{name}, dark {dark}: {said}");
            }
            assert!(!log.contains("CONSOLE"), "{sample}, dark {dark}: {log}");
        }
    }
}
