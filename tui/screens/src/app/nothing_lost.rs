//! Questions before anything is lost, and the restart of a live capture.

use super::*;

impl App {
    /// The capture was restarted: clears all data that belongs to the frames before.
    pub(super) fn restarted(&mut self) -> Vec<Effect> {
        (self.model.index, self.model.exchanges, self.model.credits_log) =
            (Index::default(), Exchanges::default(), CreditsLog::default());
        (self.model.report, self.model.exchanges_dropped, self.saved, self.saving) = (Arc::default(), 0, 0, None);
        columns_changed(self);
        (self.model.detail, self.detail_asked, self.model.followed, self.model.about) = (None, None, None, None);
        self.model.marks.clear();
        self.changed(Change::Restarted);
        let text = self.model.filter.text.clone();
        self.model.tailing = self.model.grows;
        let effects = self.filter_by(&text);
        self.choose();
        self.model.say("the capture restarts");
        effects
    }

    /// Number of captured frames that are in no file and would be lost; `None` if there are none.
    pub(super) fn unsaved(&self) -> Option<usize> {
        let unsaved = self.model.index.len().saturating_sub(self.saved);
        (self.model.is_live && unsaved > 0).then_some(unsaved)
    }

    /// Asks before an effect that would lose unsaved frames; if there are none, carries it out.
    pub(super) fn or_ask(&mut self, title: &'static str, word: &'static str, key: char, effect: Effect) -> Vec<Effect> {
        let Some(unsaved) = self.unsaved() else { return vec![effect] };
        self.popup = Some(Popup::Question(Box::new(Question {
            title,
            lines: vec![match unsaved {
                1 => "1 captured frame is not saved.".to_owned(),
                n => format!("{} captured frames are not saved.", time::grouped(n as u64)),
            }],
            answers: vec![('w', "save them", Answer::Save), (key, word, Answer::Do(vec![effect]))],
        })));
        Vec::new()
    }

    /// Starts writing to a file.
    pub(crate) fn write(&mut self, path: PathBuf, what: Output) -> Vec<Effect> {
        // only the frames that the window of a live capture has dropped are missing
        let is_all = matches!(&what, Output::Frames(Which::Range(all)) if all.start == 0);
        self.saving = is_all.then_some(self.model.index.len());
        vec![Effect::Write(Write { path, what, replace: false })]
    }
}
