//! Every key, declared once (keys of a view are declared in the view): its action, context, and line of help. The hints
//! of a screen, the help, and the names in the configuration file are made from this table.

use super::views::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Action {
    Quit,
    Help,
    View(View),
    NextView,
    PreviousView,
    NextPane,
    PreviousPane,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Filter,
    FilterBySelected,
    FilterAnd,
    FilterOr,
    FilterNot,
    Everything,
    Search,
    SearchNext,
    SearchPrevious,
    Goto,
    Mark,
    NextMark,
    PreviousMark,
    Unmark,
    Follow,
    Content,
    Explain,
    Why,
    TimeFormat,
    Sort,
    SortBy,
    SortReverse,
    Columns,
    Copy,
    Save,
    Export,
    Brush,
    ZoomIn,
    ZoomOut,
    ZoomAll,
    Maximize,
    ExpandAll,
    Theme,
    Redraw,
    Suspend,
    Keys,
    OpenFile,
    Pause,
    Restart,
}

/// The context in which a key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Everywhere.
    Moving,
    Views,
    Narrowing,
    Taking,
    Screen,
    /// Live captures alone.
    Live,
    /// The plots of credits and of latency alone.
    Plot,
}

impl Context {
    /// Heading in the help.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Moving => "Moving",
            Self::Views => "Views",
            Self::Narrowing => "Finding and narrowing",
            Self::Taking => "Taking along",
            Self::Screen => "Screen",
            Self::Live => "Live capture",
            Self::Plot => "Plots",
        }
    }

    pub(crate) const ALL: [Self; 7] =
        [Self::Views, Self::Moving, Self::Narrowing, Self::Taking, Self::Live, Self::Plot, Self::Screen];
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Name in the configuration file.
    pub(crate) name: &'static str,
    /// Keys unless configured otherwise.
    pub(crate) keys: &'static [&'static str],
    pub(crate) context: Context,
    pub(crate) action: Action,
    pub(crate) help: &'static str,
}

macro_rules! table {
    ($($context:ident: $name:literal [$($key:literal)+] $action:expr, $help:literal;)+) => {
        /// All keys but those of the views.
        const TABLE: &[Binding] = &[$(
            Binding { name: $name, keys: &[$($key),+], context: Context::$context, action: $action, help: $help },
        )+];
    };
}

table! {
    Views: "next-view" ["]"] Action::NextView, "next view";
    Views: "previous-view" ["["] Action::PreviousView, "previous view";
    Views: "next-pane" ["Tab"] Action::NextPane, "next pane";
    Views: "previous-pane" ["Shift-Tab"] Action::PreviousPane, "previous pane";
    Moving: "up" ["Up" "k"] Action::Up, "up";
    Moving: "down" ["Down" "j"] Action::Down, "down";
    Moving: "left" ["Left" "h"] Action::Left, "close a subtree; left";
    Moving: "right" ["Right" "l"] Action::Right, "open a subtree; right";
    Moving: "page-up" ["PageUp" "Ctrl-b"] Action::PageUp, "a page up";
    Moving: "page-down" ["PageDown" "Space"] Action::PageDown, "a page down";
    Moving: "first" ["Home"] Action::First, "to the first";
    Moving: "last" ["End" "G"] Action::Last, "to the last";
    Moving: "open" ["Enter"] Action::Open, "go to the frame; open a subtree; follow a connection";
    Moving: "back" ["Esc"] Action::Back, "close what is open; back to where you came from";
    Moving: "goto" ["g"] Action::Goto, "go to a frame by its number";
    Narrowing: "filter" ["/"] Action::Filter, "filter frames (Tab completes, Up has earlier ones)";
    Narrowing: "filter-by-selected" ["="] Action::FilterBySelected, "filter by the selected field";
    Narrowing: "filter-and" ["&"] Action::FilterAnd, "narrow the filter by the selected field (and)";
    Narrowing: "filter-or" ["|"] Action::FilterOr, "widen the filter by the selected field (or)";
    Narrowing: "filter-not" ["!"] Action::FilterNot, "exclude the selected field's value from the filter (and not)";
    Narrowing: "follow" ["f"] Action::Follow, "follow the connection of the selected row";
    Narrowing: "content" ["C"] Action::Content, "follow with content: the messages of the connection and their bytes";
    Narrowing: "everything" ["F"] Action::Everything, "show everything again: no filter, no connection followed";
    Narrowing: "search" ["Ctrl-f" "s"] Action::Search, "search this view: text, ~regular expression, #hex bytes, =filter";
    Narrowing: "search-next" ["n"] Action::SearchNext, "next hit";
    Narrowing: "search-previous" ["N"] Action::SearchPrevious, "previous hit";
    Narrowing: "mark" ["m"] Action::Mark, "mark the frame, or remove the mark";
    Narrowing: "next-mark" ["'"] Action::NextMark, "next marked frame";
    Narrowing: "previous-mark" ["\""] Action::PreviousMark, "previous marked frame";
    Narrowing: "unmark" ["M"] Action::Unmark, "take all marks away";
    Narrowing: "explain" ["e"] Action::Explain, "explain a finding: the rule, usual causes, what to do";
    Narrowing: "why" ["W"] Action::Why, "why a request took so long: the sequence of its frames alone, gaps measured";
    Taking: "copy" ["y"] Action::Copy, "copy value, row, bytes, or the filter that selects it";
    Taking: "save" ["w"] Action::Save, "save marked, else shown frames as pcapng";
    Taking: "export" ["x"] Action::Export, "export this view as text or .csv";
    Screen: "keys" ["K"] Action::Keys, "decrypt and verify with the keys in a file: reads the capture again";
    Screen: "open-file" ["Ctrl-o"] Action::OpenFile, "open another capture";
    Live: "pause" ["p"] Action::Pause, "stop capturing, or go on: frames that pass meanwhile are not kept";
    Live: "restart" ["R"] Action::Restart, "begin the capture anew";
    Plot: "brush" ["b"] Action::Brush, "latency: begin a brush, or cancel it";
    Plot: "zoom-in" ["+"] Action::ZoomIn, "zoom in, around the cursor";
    Plot: "zoom-out" ["-"] Action::ZoomOut, "zoom out";
    Plot: "zoom-all" ["0"] Action::ZoomAll, "all of it";
    Screen: "time" ["t"] Action::TimeFormat, "how times are shown";
    Screen: "sort" ["o"] Action::Sort, "sort by the next column (or click on a head)";
    Screen: "sort-by" ["S"] Action::SortBy, "sort by a column of your choice; again to reverse";
    Screen: "sort-reverse" ["O"] Action::SortReverse, "reverse the sort order";
    Screen: "columns" ["c"] Action::Columns, "columns: add a field, move it, remove it";
    Screen: "maximize" ["z"] Action::Maximize, "the pane alone, and back";
    Screen: "expand-all" ["*"] Action::ExpandAll, "open or close all subtrees";
    Screen: "theme" ["T"] Action::Theme, "dark, light, without colours";
    Screen: "redraw" ["Ctrl-l"] Action::Redraw, "draw the screen anew";
    Screen: "suspend" ["Ctrl-z"] Action::Suspend, "back to the shell; fg comes back";
    Screen: "help" ["?" "F1"] Action::Help, "this help";
    Screen: "quit" ["q" "Ctrl-c"] Action::Quit, "quit";
}

/// All keys: those of the views first.
pub(crate) fn bindings() -> impl Iterator<Item = Binding> {
    let views = View::ALL.iter().map(|view| Binding {
        name: view.word(),
        keys: view.key(),
        context: Context::Views,
        action: Action::View(*view),
        help: view.help(),
    });
    views.chain(TABLE.iter().copied())
}

/// A row of the table, for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct KeyHelp {
    /// Context in which the key is valid.
    pub heading: &'static str,
    /// Name in the configuration file.
    pub name: &'static str,
    /// Keys unless configured otherwise.
    pub keys: &'static [&'static str],
    /// Description for the help.
    pub help: &'static str,
}

/// All keys, in the order of the help.
pub fn keys() -> impl Iterator<Item = KeyHelp> {
    let of = |context: Context| bindings().filter(move |b| b.context == context);
    Context::ALL.into_iter().flat_map(of).map(|b| KeyHelp {
        heading: b.context.title(),
        name: b.name,
        keys: b.keys,
        help: b.help,
    })
}

/// A key with its modifiers.
type Key = (KeyCode, KeyModifiers);

/// The current assignment of keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    map: Vec<(Key, Action)>,
    names: Vec<(&'static str, Vec<String>)>,
}

impl Keys {
    /// The table with the keys of the configuration: name to keys.
    ///
    /// # Errors
    /// A name or a key that there is not.
    pub(crate) fn new(configured: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        if let Some(unknown) = configured.keys().find(|name| bindings().all(|b| b.name != name.as_str())) {
            return Err(format!("there is no action \"{unknown}\""));
        }
        let mut map = Vec::new();
        let mut names = Vec::new();
        for binding in bindings() {
            let keys: Vec<String> = configured
                .get(binding.name)
                .cloned()
                .unwrap_or_else(|| binding.keys.iter().map(|k| (*k).to_owned()).collect());
            for key in &keys {
                let key = parse(key).ok_or_else(|| format!("{}: there is no key \"{key}\"", binding.name))?;
                map.push((key, binding.action));
            }
            names.push((binding.name, keys));
        }
        // configured keys take precedence over the table
        map.sort_by_key(|(_, action)| {
            bindings().find(|b| b.action == *action).is_some_and(|b| !configured.contains_key(b.name))
        });
        Ok(Self { map, names })
    }

    /// The action of a key.
    pub(crate) fn action(&self, event: KeyEvent) -> Option<Action> {
        let mut modifiers = event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT);
        // terminals report Shift for capitals, or do not
        if event.code == KeyCode::BackTab {
            modifiers = KeyModifiers::NONE;
        }
        self.map.iter().find(|((code, m), _)| *code == event.code && *m == modifiers).map(|(_, action)| *action)
    }

    /// The keys of an action, for people.
    pub(crate) fn of(&self, action: Action) -> String {
        let name = bindings().find(|b| b.action == action).map(|b| b.name);
        self.names.iter().find(|(n, _)| Some(*n) == name).map_or_else(String::new, |(_, keys)| keys.join(" "))
    }

    /// The first key of an action.
    pub(crate) fn first(&self, action: Action) -> String {
        self.of(action).split(' ').next().unwrap_or("").to_owned()
    }
}

/// `Ctrl-f`, `PageUp`, `x`.
fn parse(text: &str) -> Option<Key> {
    if text == "Shift-Tab" {
        return Some((KeyCode::BackTab, KeyModifiers::NONE));
    }
    let (modifiers, rest) = match (text.strip_prefix("Ctrl-"), text.strip_prefix("Alt-")) {
        (Some(rest), _) => (KeyModifiers::CONTROL, rest),
        (_, Some(rest)) => (KeyModifiers::ALT, rest),
        _ => (KeyModifiers::NONE, text),
    };
    let mut chars = rest.chars();
    let code = match (rest, chars.next(), chars.next()) {
        (_, Some(c), None) => KeyCode::Char(c),
        ("Up", ..) => KeyCode::Up,
        ("Down", ..) => KeyCode::Down,
        ("Left", ..) => KeyCode::Left,
        ("Right", ..) => KeyCode::Right,
        ("PageUp", ..) => KeyCode::PageUp,
        ("PageDown", ..) => KeyCode::PageDown,
        ("Home", ..) => KeyCode::Home,
        ("End", ..) => KeyCode::End,
        ("Enter", ..) => KeyCode::Enter,
        ("Esc", ..) => KeyCode::Esc,
        ("Tab", ..) => KeyCode::Tab,
        ("Space", ..) => KeyCode::Char(' '),
        ("Backspace", ..) => KeyCode::Backspace,
        ("Delete", ..) => KeyCode::Delete,
        ("Insert", ..) => KeyCode::Insert,
        _ => KeyCode::F(rest.strip_prefix('F')?.parse().ok().filter(|n| (1..=12).contains(n))?),
    };
    Some((code, modifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_means_one_thing() {
        let keys = Keys::new(&BTreeMap::new()).unwrap();
        for (i, (key, action)) in keys.map.iter().enumerate() {
            assert!(keys.map[..i].iter().all(|(k, _)| k != key), "{key:?} of {action:?} is taken");
        }
        assert!(bindings().all(|b| !b.help.is_empty() && Context::ALL.contains(&b.context)));
    }

    #[test]
    fn keys_can_be_configured() {
        let configured = BTreeMap::from([("quit".to_owned(), vec!["x".to_owned(), "F10".to_owned()])]);
        let keys = Keys::new(&configured).unwrap();
        let press = |code| keys.action(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(
            (press(KeyCode::Char('x')), press(KeyCode::F(10)), press(KeyCode::Char('q'))),
            (Some(Action::Quit), Some(Action::Quit), None)
        );
        assert!(Keys::new(&BTreeMap::from([("qiut".to_owned(), vec![])])).is_err());
        assert!(Keys::new(&BTreeMap::from([("quit".to_owned(), vec!["Hyper-x".to_owned()])])).is_err());
    }

    #[test]
    fn shift_does_not_hide_a_capital() {
        let keys = Keys::new(&BTreeMap::new()).unwrap();
        assert_eq!(keys.action(KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT)), Some(Action::Last));
        assert_eq!(keys.action(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT)), Some(Action::PreviousPane));
    }
}
