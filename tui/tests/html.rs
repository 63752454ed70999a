//! The HTML report in a browser: no error in its console, tables that sort, plots that zoom, no network request. Needs
//! Chromium (Debian: `apt-get install chromium`). If it is missing the test says so, and fails if `CI` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Actions of a user on the page, with the expected results. The answers are put into the title.
const ACTIONS: &str = r#"
const said = [];
const check = (what, ok) => said.push((ok ? "ok " : "FAILED ") + what);
window.addEventListener("error", e => check("script error: " + e.message, false));
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
document.title = "RESULT " + said.join("; ");
"#;

fn chromium() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).flat_map(|p| ["chromium", "chromium-browser", "google-chrome"].map(|n| p.join(n))).find(|p| p.is_file())
}

fn browse(chromium: &Path, page: &Path, width: u32) -> (String, String) {
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
        .args(["--disable-sync", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("Chromium runs");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The page with a thousand more rows in its last table.
fn with_many_rows(html: &str) -> String {
    let end = html.rfind("</table>\n").expect("a table") + "</table>\n".len();
    let row = |n: u32| {
        let what = format!("row {n} of many \\u003cb>&lt;img src=x>\\u003c/b>");
        format!("[\"frame-900{n:03}\",[[\"\",900{n:03}.0,\"900,{n:03}\"],[\"\",null,\"\"],[\"\",null,\"\"],[\"l\",null,\"{what}\"]]]")
    };
    let rows: Vec<String> = (0..1000).map(row).collect();
    format!("{}<script type=\"application/json\" class=\"more\">[{}]</script>\n{}", &html[..end], rows.join(","), &html[end..])
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
        let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(sample).join(format!("{sample}.pcap"));
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
        fs::write(&page, html.replace("</body>", &format!("<script>{ACTIONS}</script></body>"))).expect("a file");
        for width in [500, 1280] {
            let (dom, log) = browse(&chromium, &page, width);
            let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
            assert!(title.starts_with("RESULT "), "{sample}, {width}: the page did not come to its end: {title}\n{log}");
            assert!(!title.contains("FAILED"), "{sample}, {width}: {title}");
            assert!(!log.contains("CONSOLE"), "{sample}, {width}: {log}");
        }
    }
}
