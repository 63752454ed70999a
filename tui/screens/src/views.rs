//! The views, each a row: its name, its key, and the line of help. A view is this row and a file of the same name,
//! whose `State` is a `Screen`; keys, tabs, help, the configuration file and the place of the state (`states`) are made
//! from the rows.

/// Hands the rows to a macro: view, file, name, short name, key, help.
macro_rules! views {
    ($then:ident) => {
        $then! {
            Overview overview "Overview" "Over" "1" "overview: what is wrong, connections, slowest I/O";
            Frames frames "Frames" "Frames" "2" "frames: list, fields, bytes";
            Io io "I/O" "I/O" "3" "I/O: one row per request and its reply";
            Credits credits "Credits" "Credits" "4" "credits over time";
            Sequence sequence "Sequence" "Seq" "5" "sequence: who sent what when";
            Memory memory "Memory" "Mem" "6" "memory: remote keys";
            Findings findings "Findings" "Find" "7" "findings by severity";
            Statistics statistics "Statistics" "Stats" "8" "statistics";
            Latency latency "Latency" "Lat" "9" "latency: requests by when and how long, with a brush that filters";
            Sessions sessions "Sessions" "Sess" "P" "sessions with their connections, and the path to RDMA";
            Hosts hosts "Hosts" "Hosts" "H" "hosts: conversations and endpoints";
        }
    };
}
pub(crate) use views;

macro_rules! names {
    ($($view:ident $file:ident $name:literal $short:literal $key:literal $help:literal;)+) => {
        /// The views, in the order of their keys.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) enum View {
            #[default]
            $($view,)+
        }

        impl View {
            pub(crate) const ALL: &[Self] = &[$(Self::$view),+];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$view => $name,)+
                }
            }

            /// Short name, for narrow screens.
            pub(crate) const fn short_name(self) -> &'static str {
                match self {
                    $(Self::$view => $short,)+
                }
            }

            /// Its name in the configuration file.
            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Self::$view => stringify!($file),)+
                }
            }

            /// Its key, unless configured otherwise.
            pub(crate) const fn key(self) -> &'static [&'static str] {
                match self {
                    $(Self::$view => &[$key],)+
                }
            }

            /// The line of help.
            pub(crate) const fn help(self) -> &'static str {
                match self {
                    $(Self::$view => $help,)+
                }
            }
        }
    };
}

views!(names);

impl View {
    /// The view this many steps further, with wrap-around.
    pub(crate) fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}
