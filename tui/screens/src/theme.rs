//! Colours. The background is the terminal's own, dark or light. If the terminal has 256 colours, fixed ones are used,
//! chosen for that background; otherwise those of the sixteen that are readable on it in the default palettes of
//! terminals. With NO_COLOR there are no colours; bold, underline and reverse carry the same information. A test checks
//! the contrast of every text: 4.5 to 1 at least (WCAG 2, AA).

use ratatui::style::{Color, Modifier, Style};
use rdmascope_analyzer::rules::Severity;

/// Styles by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) name: Name,
    pub(crate) depth: Depth,
    pub(crate) text: Style,
    pub(crate) faint: Style,
    pub(crate) title: Style,
    pub(crate) heading: Style,
    pub(crate) tab: Style,
    pub(crate) tab_active: Style,
    /// The selected row of the pane with the focus, and of other panes.
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
    pub(crate) const ALL: [Self; 3] = [Self::Dark, Self::Light, Self::Mono];

    /// Chosen by the background that the terminal reports: rxvt, Konsole and others set `COLORFGBG`.
    pub(crate) fn of_environment() -> Self {
        Self::said_by(&std::env::var("COLORFGBG").unwrap_or_default())
    }

    fn said_by(colors: &str) -> Self {
        match colors.rsplit(';').next().and_then(|ground| ground.parse::<u8>().ok()) {
            Some(7 | 9..=15) => Self::Light,
            _ => Self::Dark,
        }
    }

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

/// Number of colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Sixteen, whose looks its user chooses.
    Sixteen,
    /// 256 and more.
    Many,
}

impl Depth {
    /// Colors that the environment announces.
    pub(crate) fn of_environment() -> Self {
        let value = |name| std::env::var(name).unwrap_or_default();
        Self::said_by(&value("TERM"), &value("COLORTERM"))
    }

    fn said_by(term: &str, colors: &str) -> Self {
        let many = matches!(colors, "truecolor" | "24bit")
            || ["256color", "direct", "kitty", "alacritty"].iter().any(|w| term.contains(w));
        if many { Self::Many } else { Self::Sixteen }
    }
}

/// Colours by purpose, for one colour depth.
struct Palette {
    faint: Style,
    accent: Color,
    /// With or without bold, which turns some of the sixteen into brighter ones.
    error: Style,
    strong: Style,
    yellow: Color,
    blue: Color,
    green: Color,
    magenta: Color,
    elsewhere: Style,
}

impl Palette {
    fn new(is_dark: bool, depth: Depth) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        match (is_dark, depth) {
            (true, Depth::Many) => Self {
                faint: plain.fg(Color::Indexed(248)),
                accent: Color::Indexed(117),
                error: bold.fg(Color::Indexed(210)),
                strong: bold.fg(Color::Indexed(221)),
                yellow: Color::Indexed(221),
                blue: Color::Indexed(111),
                green: Color::Indexed(114),
                magenta: Color::Indexed(177),
                elsewhere: plain.bg(Color::Indexed(237)),
            },
            (false, Depth::Many) => Self {
                faint: plain.fg(Color::Indexed(240)),
                accent: Color::Indexed(25),
                error: bold.fg(Color::Indexed(124)),
                strong: bold.fg(Color::Indexed(94)),
                yellow: Color::Indexed(94),
                blue: Color::Indexed(25),
                green: Color::Indexed(22),
                magenta: Color::Indexed(90),
                elsewhere: plain.bg(Color::Indexed(255)),
            },
            (true, Depth::Sixteen) => Self {
                faint: plain.fg(Color::White).add_modifier(Modifier::DIM),
                accent: Color::LightCyan,
                error: bold.fg(Color::LightRed),
                strong: bold.fg(Color::LightYellow),
                yellow: Color::LightYellow,
                blue: Color::LightCyan,
                green: Color::LightGreen,
                magenta: Color::LightMagenta,
                elsewhere: plain.add_modifier(Modifier::UNDERLINED),
            },
            (false, Depth::Sixteen) => Self {
                faint: plain.add_modifier(Modifier::DIM),
                accent: Color::Blue,
                error: plain.fg(Color::Red).add_modifier(Modifier::UNDERLINED),
                strong: plain.fg(Color::Magenta),
                yellow: Color::Magenta,
                blue: Color::Blue,
                green: Color::Black,
                magenta: Color::Magenta,
                elsewhere: plain.add_modifier(Modifier::UNDERLINED),
            },
        }
    }
}

impl Theme {
    pub(crate) fn new(name: Name, depth: Depth) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        if name == Name::Mono {
            return Self {
                name,
                depth,
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
        let palette = Palette::new(name == Name::Dark, depth);
        Self {
            name,
            depth,
            text: plain,
            faint: palette.faint,
            title: bold.fg(palette.accent),
            heading: bold.fg(palette.accent),
            tab: plain,
            tab_active: bold.fg(palette.accent).add_modifier(Modifier::REVERSED),
            selected: reversed,
            selected_elsewhere: palette.elsewhere,
            error: palette.error,
            warn: plain.fg(palette.yellow),
            note: plain.fg(palette.blue),
            good: plain.fg(palette.green),
            client: plain.fg(palette.accent),
            server: plain.fg(palette.green),
            upper: plain.fg(palette.magenta),
            rdma: plain.fg(palette.magenta),
            key: palette.strong,
            mark: palette.strong,
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

/// The sign of a severity, which does not depend on colours.
pub(crate) const fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "✗",
        Severity::Warn => "!",
        Severity::Note => "·",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xterm's sixteen, and those of the consoles of IBM's PCs, which VTE and Linux come with (but for small changes).
    const SIXTEEN: [[u32; 16]; 2] = [
        [
            0x000000, 0xcd0000, 0x00cd00, 0xcdcd00, 0x0000ee, 0xcd00cd, 0x00cdcd, 0xe5e5e5, 0x7f7f7f, 0xff0000,
            0x00ff00, 0xffff00, 0x5c5cff, 0xff00ff, 0x00ffff, 0xffffff,
        ],
        [
            0x000000, 0xaa0000, 0x00aa00, 0xaa5500, 0x0000aa, 0xaa00aa, 0x00aaaa, 0xaaaaaa, 0x555555, 0xff5555,
            0x55ff55, 0xffff55, 0x5555ff, 0xff55ff, 0x55ffff, 0xffffff,
        ],
    ];

    /// RGB value of a colour; `None` for the terminal's own.
    fn seen(color: Option<Color>, sixteen: &[u32; 16]) -> Option<u32> {
        const ORDER: [Color; 16] = [
            Color::Black,
            Color::Red,
            Color::Green,
            Color::Yellow,
            Color::Blue,
            Color::Magenta,
            Color::Cyan,
            Color::Gray,
            Color::DarkGray,
            Color::LightRed,
            Color::LightGreen,
            Color::LightYellow,
            Color::LightBlue,
            Color::LightMagenta,
            Color::LightCyan,
            Color::White,
        ];
        match color? {
            Color::Reset => None,
            Color::Indexed(n @ 232..) => Some((u32::from(n) - 232) * 0x0a_0a0a + 0x08_0808),
            Color::Indexed(n @ 16..) => {
                let level = |digit: u32| if digit == 0 { 0 } else { 55 + 40 * digit };
                let n = u32::from(n) - 16;
                Some(level(n / 36) << 16 | level(n / 6 % 6) << 8 | level(n % 6))
            }
            named => Some(sixteen[ORDER.iter().position(|c| *c == named).unwrap()]),
        }
    }

    /// WCAG 2.2, contrast ratio.
    fn contrast(a: u32, b: u32) -> f64 {
        let luminance = |color: u32| {
            let part = |shift: u32| {
                let value = f64::from(color >> shift & 0xff) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0)
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn styles(t: &Theme) -> [(&'static str, Style); 18] {
        [
            ("text", t.text),
            ("faint", t.faint),
            ("title", t.title),
            ("heading", t.heading),
            ("tab", t.tab),
            ("tab_active", t.tab_active),
            ("selected", t.selected),
            ("selected_elsewhere", t.selected_elsewhere),
            ("error", t.error),
            ("warn", t.warn),
            ("note", t.note),
            ("good", t.good),
            ("client", t.client),
            ("server", t.server),
            ("upper", t.upper),
            ("rdma", t.rdma),
            ("key", t.key),
            ("mark", t.mark),
        ]
    }

    #[test]
    fn contrast_is_that_of_wcag() {
        assert!((contrast(0x000000, 0xffffff) - 21.0).abs() < 1e-9);
        assert!((contrast(0x777777, 0xffffff) - 4.48).abs() < 0.005);
        assert_eq!(contrast(0x123456, 0x123456), 1.0);
    }

    #[test]
    fn every_text_can_be_read_on_its_ground() {
        for (name, ground, text) in [(Name::Dark, 0x000000, 0xe5e5e5), (Name::Light, 0xffffff, 0x000000)] {
            for depth in [Depth::Sixteen, Depth::Many] {
                for sixteen in &SIXTEEN {
                    let theme = Theme::new(name, depth);
                    let elsewhere = seen(theme.selected_elsewhere.bg, sixteen).unwrap_or(ground);
                    for (what, style) in styles(&theme) {
                        let mut color = seen(style.fg, sixteen).unwrap_or(text);
                        if style.add_modifier.contains(Modifier::DIM) {
                            // two thirds of it, as VTE draws it
                            let part =
                                |shift: u32| (((color >> shift & 0xff) * 2 + (ground >> shift & 0xff)) / 3) << shift;
                            color = part(16) | part(8) | part(0);
                        }
                        for ground in [seen(style.bg, sixteen).unwrap_or(ground), elsewhere] {
                            let ratio = contrast(color, ground);
                            assert!(
                                ratio >= 4.5,
                                "{name:?} {depth:?} {what}: {color:06x} on {ground:06x} is {ratio:.2}"
                            );
                        }
                        // many terminals show the first eight colours brighter if they are bold
                        if let (true, Some(at)) = (
                            style.add_modifier.contains(Modifier::BOLD),
                            sixteen[1..8].iter().position(|c| *c == color),
                        ) {
                            let bright = sixteen[at + 9];
                            assert!(
                                contrast(bright, ground) >= 4.5,
                                "{name:?} {depth:?} {what}: {bright:06x} if bold is bright"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sides_and_severities_differ() {
        for name in [Name::Dark, Name::Light, Name::Mono] {
            for depth in [Depth::Sixteen, Depth::Many] {
                let t = Theme::new(name, depth);
                assert!(
                    t.error != t.warn
                        && t.warn != t.note
                        && t.error != t.note
                        && t.client != t.server
                        && t.text != t.faint
                );
                assert!(
                    t.selected != t.selected_elsewhere && t.tab != t.tab_active && t.selected_elsewhere != Style::new()
                );
            }
        }
    }

    #[test]
    fn terminals_say_what_ground_they_have() {
        assert_eq!(["0;15", "0;default;15", "0;7"].map(Name::said_by), [Name::Light; 3]);
        assert_eq!(["15;0", "", "default;default", "7;8"].map(Name::said_by), [Name::Dark; 4]);
    }

    #[test]
    fn terminals_say_how_many_colours_they_have() {
        for (term, colors, depth) in [
            ("xterm-256color", "", Depth::Many),
            ("tmux-256color", "", Depth::Many),
            ("xterm-kitty", "", Depth::Many),
            ("xterm", "truecolor", Depth::Many),
            ("linux", "", Depth::Sixteen),
            ("xterm", "", Depth::Sixteen),
            ("", "", Depth::Sixteen),
        ] {
            assert_eq!(Depth::said_by(term, colors), depth, "{term} {colors}");
        }
    }
}
