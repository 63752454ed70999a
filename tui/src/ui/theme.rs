//! Colours: only the sixteen of every terminal, so that the user's own palette decides how they look. With NO_COLOR there are
//! none, and bold, underline and reverse say the same.

use ratatui::style::{Color, Modifier, Style};
use rdmascope_analyzer::rules::Severity;

/// What a style is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) name: Name,
    pub(crate) text: Style,
    pub(crate) faint: Style,
    pub(crate) title: Style,
    pub(crate) heading: Style,
    pub(crate) tab: Style,
    pub(crate) tab_active: Style,
    /// The selected row where the keys go, and where they do not.
    pub(crate) selected: Style,
    pub(crate) selected_elsewhere: Style,
    pub(crate) error: Style,
    pub(crate) warn: Style,
    pub(crate) note: Style,
    pub(crate) good: Style,
    pub(crate) client: Style,
    pub(crate) server: Style,
    pub(crate) upper: Style,
    pub(crate) rdma: Style,
    pub(crate) key: Style,
    pub(crate) mark: Style,
    /// Bytes of the selected field.
    pub(crate) field: Style,
}

/// The themes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Name {
    #[default]
    Dark,
    Light,
    Mono,
}

impl Name {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Mono => "without colours",
        }
    }

    /// The one after it.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Dark => Self::Light,
            Self::Light => Self::Mono,
            Self::Mono => Self::Dark,
        }
    }
}

impl Theme {
    pub(crate) fn new(name: Name) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        let (c, fg) = match name {
            Name::Mono => {
                return Self {
                    name,
                    text: plain,
                    faint: plain.add_modifier(Modifier::DIM),
                    title: bold,
                    heading: bold,
                    tab: plain,
                    tab_active: reversed,
                    selected: reversed,
                    selected_elsewhere: plain.add_modifier(Modifier::UNDERLINED),
                    error: bold.add_modifier(Modifier::UNDERLINED),
                    warn: bold,
                    note: plain,
                    good: plain,
                    client: bold,
                    server: plain,
                    upper: plain.add_modifier(Modifier::DIM),
                    rdma: plain.add_modifier(Modifier::ITALIC),
                    key: bold,
                    mark: bold.add_modifier(Modifier::UNDERLINED),
                    field: reversed,
                };
            }
            Name::Dark => (
                [
                    Color::DarkGray,
                    Color::LightCyan,
                    Color::LightRed,
                    Color::LightYellow,
                    Color::LightBlue,
                    Color::LightGreen,
                    Color::LightMagenta,
                ],
                Color::Gray,
            ),
            Name::Light => {
                ([Color::DarkGray, Color::Blue, Color::Red, Color::Magenta, Color::Blue, Color::Green, Color::Magenta], Color::Black)
            }
        };
        let [gray, accent, red, yellow, blue, green, magenta] = c;
        // what is said faintly on a light ground must still be read
        let faint = if name == Name::Light { plain.fg(gray) } else { plain.fg(Color::Gray).add_modifier(Modifier::DIM) };
        Self {
            name,
            text: plain,
            faint,
            title: bold.fg(accent),
            heading: bold.fg(accent),
            tab: plain.fg(fg),
            tab_active: bold.fg(accent).add_modifier(Modifier::REVERSED),
            selected: reversed,
            selected_elsewhere: plain.bg(if name == Name::Light { Color::Gray } else { Color::DarkGray }),
            error: bold.fg(red),
            warn: plain.fg(yellow),
            note: plain.fg(blue),
            good: plain.fg(green),
            client: plain.fg(accent),
            server: plain.fg(green),
            upper: plain.fg(magenta),
            rdma: plain.fg(magenta),
            key: bold.fg(yellow),
            mark: bold.fg(yellow),
            field: reversed,
        }
    }

    /// A finding's.
    pub(crate) fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Error => self.error,
            Severity::Warn => self.warn,
            Severity::Note => self.note,
        }
    }

    /// A protocol's.
    pub(crate) fn protocol(&self, protocol: &str) -> Style {
        match protocol {
            "SMB2" | "NFS" | "RPC" | "MOUNT" => self.text,
            p if p.starts_with("SMB") || p.starts_with("RPC") => self.client,
            "InfiniBand" | "RRoCE" | "RoCE" | "MPA" | "DDP" | "RDMAP" | "iWARP" | "CM" => self.rdma,
            _ => self.faint,
        }
    }
}

/// The sign of a severity, which also says it without colours.
pub(crate) const fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "✗",
        Severity::Warn => "!",
        Severity::Note => "·",
    }
}
