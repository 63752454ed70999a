//! The views with their states, from the rows of [`views!`]. Code that routes to a view gets it from here.

use super::screen::Screen;
use super::views::{View, views};

macro_rules! states {
    ($($view:ident $file:ident $name:literal $short:literal $key:literal $help:literal;)+) => {
        /// State of each view: the position of the user, the sort order, and data prepared for drawing.
        #[derive(Debug, Default)]
        pub(crate) struct States {
            $(pub(crate) $file: super::$file::State,)+
        }

        impl States {
            pub(crate) fn of(&self, view: View) -> &dyn Screen {
                match view {
                    $(View::$view => &self.$file,)+
                }
            }

            pub(crate) fn of_mut(&mut self, view: View) -> &mut dyn Screen {
                match view {
                    $(View::$view => &mut self.$file,)+
                }
            }
        }
    };
}

views!(states);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Action, bindings};

    #[test]
    fn each_view_has_a_key_hints_and_names_of_its_own() {
        let states = States::default();
        for (i, view) in View::ALL.iter().enumerate() {
            assert_eq!(bindings().filter(|b| b.action == Action::View(*view)).count(), 1, "{view:?}");
            assert!(!states.of(*view).hints().is_empty() && view.short_name().len() <= view.name().len(), "{view:?}");
            assert!(
                View::ALL[..i].iter().all(|v| v.name() != view.name() && v.short_name() != view.short_name()),
                "{view:?}"
            );
            assert_eq!(view.step(1).step(View::ALL.len() - 1), *view);
        }
    }
}
