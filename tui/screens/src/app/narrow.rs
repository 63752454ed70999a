//! Selection of the rows that are shown: by the followed connection and the filter, and their order.

use super::*;

impl App {
    /// Selects the connections, findings and sums to show: those of the followed connection, with a frame that passes
    /// the filter.
    pub(super) fn choose(&mut self) {
        self.model.filter.chosen = self.model.filter.found.len();
        self.model.slowest.clear();
        if self.model.followed.is_none() && !self.model.filter.is_on() {
            self.model.chosen = None;
            self.model.found = self.model.report.found.clone();
            self.model.sums = self.model.report.sums.clone();
            return self.changed(Change::Sums);
        }
        let followed = self.model.followed.as_ref().map(|f| &f.ids);
        let passing = self.model.filter.is_on().then_some(&self.model.filter.connections);
        // a connection has several numbers, which may be of one or of several in the report
        let mut places: Vec<usize> = match (followed, passing) {
            (Some(ids), passing) => ids
                .iter()
                .filter(|id| passing.is_none_or(|p| ids.iter().any(|id| p.contains(id)) || p.contains(id)))
                .copied()
                .collect(),
            (None, passing) => passing.into_iter().flatten().copied().collect::<Vec<u32>>(),
        }
        .into_iter()
        .filter_map(|id| self.model.report.place(id))
        .collect();
        places.sort_unstable();
        places.dedup();
        self.model.chosen = Some(places);
        let ids: HashSet<u32> = self.model.connections().map(|c| c.id).collect();
        let filter = Some(&self.model.filter).filter(|f| f.is_on());
        self.model.found = self.model.report.found_on(&ids, |f| {
            filter.is_none_or(|filter| {
                // of many occurrences only the first frames are known
                let of_shown = f.connection.is_some_and(|c| ids.contains(&c));
                f.frames.iter().any(|n| filter.has_frame(*n)) || of_shown && f.count > f.frames.len() as u64
            })
        });
        if filter.is_some() {
            let passing = self
                .model
                .exchanges
                .iter()
                .filter(|(_, e)| self.model.concerns(e.connection) && order::passes(e, &self.model.filter.found));
            let mut slowest: Vec<(i64, u32)> =
                passing.filter_map(|(place, e)| Some((e.latency()?.saturating_neg(), place))).collect();
            slowest.sort_unstable();
            slowest.truncate(SLOWEST_MAX);
            self.model.slowest = slowest
                .into_iter()
                .filter_map(|(_, place)| self.model.exchanges.at(place as usize))
                .map(|e| Exchange { connection: self.model.connection(e.connection).map_or(0, |c| c.id), ..e.clone() })
                .collect();
        }
        self.model.sums = Arc::new(Sums::of(self.model.connections()));
        self.changed(Change::Sums);
    }

    /// Removes the filter, and stops following a connection.
    pub(crate) fn show_everything(&mut self) -> Vec<Effect> {
        let place = self.model.frame_at(self.states.frames.list.at);
        self.model.followed = None;
        let effects = self.filter_by("");
        if let Some(place) = place {
            let (row, len, page) =
                (self.model.row_of(place), self.model.row_count(), frames::page(&self.states.frames, &self.model));
            self.states.frames.list.jump(row, len, page);
        }
        effects
    }

    /// Narrows everything to a connection, or widens it again if that connection is already followed.
    pub(crate) fn follow(&mut self, followed_as: Option<u32>) {
        let Some(connection) = followed_as.and_then(|id| self.model.connection(id)) else {
            self.model.complain("this row belongs to no connection");
            return;
        };
        let followed = Followed { ids: connection.followed_as.clone() };
        let id = connection.id;
        self.model.about = None;
        if self.model.followed.as_ref() == Some(&followed) {
            self.model.followed = None;
            self.model.say("all connections again");
        } else {
            self.model.followed = Some(followed);
            self.model
                .say(format!("connection {id} alone; {} shows all again", self.model.keys.first(Action::Everything)));
        }
        self.narrow();
    }

    /// Sets the filter. The frames that pass come later.
    pub(crate) fn filter_by(&mut self, text: &str) -> Vec<Effect> {
        self.model.filter =
            Filter { text: text.trim().to_owned(), generation: self.model.filter.generation + 1, ..Filter::default() };
        self.narrow();
        let mut effects =
            vec![Effect::Filter { generation: self.model.filter.generation, text: self.model.filter.text.clone() }];
        if self.model.filter.is_on() {
            let text = self.model.filter.text.clone();
            self.model.history.retain(|h| *h != text);
            self.model.history.push(text);
            effects.push(Effect::Keep(Keep::Filters(self.model.history.clone())));
        }
        effects
    }

    /// Rebuilds the list of shown frames.
    pub(super) fn narrow(&mut self) {
        let place = self.model.frame_at(self.states.frames.list.at);
        self.model.scanned = 0;
        self.model.shown = (self.model.filter.is_on() || self.model.followed.is_some()).then(Vec::new);
        self.model.sorting.outdated();
        self.changed(Change::Narrowed);
        self.choose();
        self.scan();
        if let Some(place) = place {
            let (row, len, page) =
                (self.model.row_of(place), self.model.row_count(), frames::page(&self.states.frames, &self.model));
            self.states.frames.list.jump(row, len, page);
        }
    }

    /// Checks the new frames, for the list of shown ones.
    pub(super) fn scan(&mut self) {
        let Some(mut shown) = self.model.shown.take() else { return };
        if self.model.filter.is_on() {
            let upto = self.model.filter.found.len().min(self.model.scanned + SCAN_STEP);
            let found = self.model.filter.found.get(self.model.scanned..upto).unwrap_or(&[]);
            shown.extend(
                found
                    .iter()
                    .filter(|i| self.model.index.at(**i as usize).is_some_and(|e| self.model.concerns(e.connection))),
            );
            self.model.scanned = upto;
        } else {
            let upto = self.model.index.len().min(self.model.scanned + SCAN_STEP);
            let new = self
                .model
                .index
                .from(self.model.scanned)
                .take_while(|(i, _)| *i < upto)
                .filter(|(_, e)| self.model.concerns(e.connection));
            shown.extend(new.map(|(i, _)| i as u32));
            self.model.scanned = upto;
        }
        self.model.shown = Some(shown);
    }

    /// Sorts the frame list.
    pub(crate) fn sort_frames(&mut self, by: By, down: bool) -> Vec<Effect> {
        let place = self.model.frame_at(self.states.frames.list.at).filter(|_| self.states.frames.list.at > 0);
        if by == self.model.sorting.by && self.model.sorting.sorted.is_some() && (by != By::Number || down) {
            self.model.sorting.down = down;
        } else {
            self.model.sorting.outdated();
            (self.model.sorting.by, self.model.sorting.down) = (by, down);
        }
        if let Some(place) = place {
            self.show_place(place);
        }
        self.model.tailing &= !self.model.sorting.is_on();
        vec![Effect::EndSort(self.model.sorting.generation)]
    }

    /// Adds a column at a position (counted from 1; at the end if none is given) or moves it there. Removes it if it is
    /// already at that position. Without a name, removes all.
    pub(super) fn set_column(&mut self, text: &str) -> Result<(), String> {
        let columns = &mut self.model.columns;
        let mut words = text.split_whitespace();
        match words.next() {
            None => columns.clear(),
            Some(name) => {
                let def = self.model.registry.find(name).ok_or_else(|| format!("there is no field \"{name}\""))?;
                let place = words.next().map(|word| {
                    word.parse::<usize>().map_err(|_| format!("\"{word}\" is not a place: 1 is the first"))
                });
                let place = place.transpose()?;
                let before = columns.iter().position(|c| c.name == def.name);
                if let Some(at) = before {
                    columns.remove(at);
                }
                match (before, place) {
                    (Some(_), None) => {}
                    (_, place) => {
                        columns.insert(place.map_or(columns.len(), |p| p.saturating_sub(1).min(columns.len())), def)
                    }
                }
            }
        }
        // if the column by which a list is sorted was removed, the list is in the order of the capture again
        if !frames::sorts(&self.model).contains(&self.model.sorting.by) {
            self.sort_frames(By::Number, false);
        }
        columns_changed(self);
        Ok(())
    }
}
