//! Sessions: each SMB session, NFS session or mount with its connections and their traffic; and how far each client and
//! server got on the path to RDMA.
//!
//! ```text
//! ── SMB session 0x1, SMB 3.1.1, 192.0.2.2 → 192.0.2.1 ────────── 2 connections, 412 requests ──
//!    #  over    role           requests  opens  locks       read    written    by RDMA    median  sent again  share
//!    1  iWARP   set up on it        212      9      0  1,048,576          0  1,048,576   0.62 ms           0   51 %
//! ── path to RDMA: SMB from 192.0.2.2 to 192.0.2.1 runs over TCP ──────────────────────────────
//!  ✓ dialect               SMB 3.1.1
//!  ✗ server: multichannel  not offered
//! ```

use super::draw::{Line, Page};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use ratatui::buffer::Buffer;
use rdmascope_analyzer::path::State as Answer;
use rdmascope_analyzer::session::{self, Channel, Session};
use rdmascope_report::report::{ladder, sessions as words};

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    page: Page,
}

/// Widths of the columns of [`words::HEADS`]; those with 0 are left out if space is short.
const WIDTHS: [usize; 12] = [4, 11, 14, 9, 7, 7, 13, 13, 13, 10, 11, 7];
/// Columns that are left out first.
const WIDE_ONLY: [usize; 5] = [2, 4, 5, 8, 10];

fn cells(row: &[String; 12], wide: bool) -> String {
    let mut out = String::new();
    for (i, (cell, width)) in row.iter().zip(WIDTHS).enumerate() {
        if !wide && WIDE_ONLY.contains(&i) {
            continue;
        }
        let is_left = matches!(i, 1 | 2);
        out.push_str(&if is_left { format!("  {cell:<w$}", w = width - 2) } else { format!("{cell:>width$}") });
    }
    out
}

fn lines(model: &Model) -> Vec<Line> {
    let theme = &model.theme;
    let wide = usize::from(model.size.0) >= WIDTHS.iter().sum::<usize>() + 2;
    let mut out = Vec::new();
    for session in session::sessions(&model.report) {
        out.push(Line::Head(words::headline(&session)));
        out.push(Line::Pieces(vec![(words::sums(&session), theme.text)]));
        out.push(Line::Pieces(vec![(cells(&words::HEADS.map(str::to_owned), wide), theme.faint)]));
        for channel in &session.channels {
            let style = if channel.broke { theme.warn } else { theme.text };
            out.push(Line::Pieces(vec![(cells(&words::row(&session, channel), wide), style)]));
        }
        out.extend(session.remarks.iter().map(|remark| Line::Pieces(vec![(remark.clone(), theme.warn)])));
    }
    if out.is_empty() {
        out.push(Line::Pieces(vec![("no session of SMB or NFS was seen".to_owned(), theme.faint)]));
    }
    for path in &model.report.paths {
        out.push(Line::Head(format!("path to RDMA: {}", ladder::headline(path))));
        for rung in &path.rungs {
            let style = match rung.state {
                Answer::Yes => theme.good,
                Answer::No => theme.error,
                Answer::NotSeen | Answer::NotNeeded => theme.faint,
            };
            let frame = rung.at.map_or_else(String::new, |at| format!("   frame {}", at.frame));
            out.push(Line::Pieces(vec![
                (format!("{} ", ladder::mark(rung.state)), style),
                (format!("{:<24}", rung.step.name()), theme.text),
                (ladder::detail(rung), if rung.state == Answer::No { theme.error } else { theme.text }),
                (frame, theme.faint),
            ]));
        }
    }
    out
}

/// For an export: the heads.
const EXPORTED: [&str; 13] = [
    "session",
    "connection",
    "over",
    "role",
    "requests",
    "opens",
    "locks",
    "read",
    "written",
    "by_rdma",
    "median_ns",
    "sent_again",
    "share_percent",
];

/// For an export: a connection of a session, numbers as they are.
fn exported(name: &str, session: &Session, c: &Channel) -> Vec<String> {
    let [_, over, role, ..] = words::row(session, c);
    vec![
        name.to_owned(),
        c.connection.to_string(),
        over,
        role,
        c.requests.to_string(),
        c.opens.to_string(),
        c.locks.to_string(),
        c.read.to_string(),
        c.written.to_string(),
        c.rdma.to_string(),
        c.latency.quantile(500).map_or_else(String::new, |ns| ns.to_string()),
        c.retransmissions.to_string(),
        session.share(c).to_string(),
    ]
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::PageDown, "page")]
    }

    fn prepare(&mut self, model: &Model) {
        if self.page.is_outdated() {
            let lines = lines(model);
            self.page.set(lines);
        }
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        self.page.draw(buf, model.body(), &model.theme);
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        let height = model.body().height;
        self.page.turn(action, height);
        Vec::new()
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        model.subject().and_then(|c| c.followed_as.first().copied())
    }

    fn changed(&mut self, _change: Change) {
        self.page.outdated();
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        let mut out = vec![EXPORTED.map(str::to_owned).to_vec()];
        for session in session::sessions(&model.report) {
            let name = words::headline(&session);
            out.extend(session.channels.iter().map(|c| exported(&name, &session, c)));
        }
        out
    }
}
