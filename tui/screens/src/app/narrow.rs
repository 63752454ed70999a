//! What is shown: the followed connection, what the filter passes, in which order.

use super::*;

impl App {
    /// A connection by the number under which it is followed.
    pub(crate) fn connection(&self, followed_as: u32) -> Option<&Connection> {
        self.report.connections.get(self.report.place(followed_as)?)
    }

    /// Which end of a connection is shown as the client.
    pub(crate) fn client_end(&self, followed_as: u32) -> End {
        let Some(connection) = self.connection(followed_as) else { return End::A };
        let client = connection.client_end.unwrap_or(End::A);
        // what was followed as a half of its own counted its ends from itself
        if connection.followed_as.first() == Some(&followed_as) { client } else { client.peer() }
    }

    /// The connection that credit plot and sequence are about: the followed one, else that of the row from which one came, else the
    /// busiest.
    pub(crate) fn subject(&self) -> Option<&Connection> {
        if let Some(followed) = &self.followed {
            return followed.ids.iter().find_map(|id| self.connection(*id));
        }
        let chosen = self.about.and_then(|id| self.connection(id));
        let busiest = self.report.busiest().filter(|busiest| self.chosen.as_ref().is_none_or(|places| places.contains(busiest)));
        let place = busiest.or_else(|| self.chosen.as_ref().and_then(|places| places.first().copied())).or(self.report.busiest());
        chosen.or_else(|| self.report.connections.get(place?))
    }

    /// Whether a thing of this connection is to be shown.
    pub(crate) fn concerns(&self, followed_as: u32) -> bool {
        self.followed.as_ref().is_none_or(|f| f.ids.contains(&followed_as))
    }

    /// Connections that are shown.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        let all = if self.chosen.is_none() { self.report.connections.as_slice() } else { &[] };
        all.iter().chain(self.chosen.iter().flatten().filter_map(|i| self.report.connections.get(*i)))
    }

    /// How many these are.
    pub(crate) fn connection_count(&self) -> usize {
        self.chosen.as_ref().map_or(self.report.connections.len(), Vec::len)
    }

    /// One of these.
    pub(crate) fn connection_at(&self, row: usize) -> Option<&Connection> {
        let place = self.chosen.as_ref().map_or(Some(row), |places| places.get(row).copied());
        self.report.connections.get(place?)
    }

    /// Whether connections are all shown.
    pub(crate) fn shows_all_connections(&self) -> bool {
        self.chosen.is_none()
    }

    /// Takes what is shown of connections, findings and sums: of the followed connection, with a frame that passes the filter.
    pub(super) fn choose(&mut self) {
        self.filter.chosen = self.filter.found.len();
        self.slowest.clear();
        if self.followed.is_none() && !self.filter.is_on() {
            self.chosen = None;
            self.found = self.report.found.clone();
            self.sums = self.report.sums.clone();
            return self.changed(Change::Sums);
        }
        let followed = self.followed.as_ref().map(|f| &f.ids);
        let passing = self.filter.is_on().then_some(&self.filter.connections);
        // a connection has several numbers, which may be of one or of several in the report
        let mut places: Vec<usize> = match (followed, passing) {
            (Some(ids), passing) => {
                ids.iter().filter(|id| passing.is_none_or(|p| ids.iter().any(|id| p.contains(id)) || p.contains(id))).copied().collect()
            }
            (None, passing) => passing.into_iter().flatten().copied().collect::<Vec<u32>>(),
        }
        .into_iter()
        .filter_map(|id| self.report.place(id))
        .collect();
        places.sort_unstable();
        places.dedup();
        self.chosen = Some(places);
        let ids: HashSet<u32> = self.connections().map(|c| c.id).collect();
        let filter = Some(&self.filter).filter(|f| f.is_on());
        self.found = self.report.found_on(&ids, |f| {
            filter.is_none_or(|filter| {
                // of many occurrences only the first frames are known
                let of_shown = f.connection.is_some_and(|c| ids.contains(&c));
                f.frames.iter().any(|n| filter.has_frame(*n)) || of_shown && f.count > f.frames.len() as u64
            })
        });
        if filter.is_some() {
            let passing = self.exchanges.iter().filter(|(_, e)| self.concerns(e.connection) && order::passes(e, &self.filter.found));
            let mut slowest: Vec<(i64, u32)> = passing.filter_map(|(place, e)| Some((-e.latency()?, place))).collect();
            slowest.sort_unstable();
            slowest.truncate(SLOWEST_MAX);
            self.slowest = slowest
                .into_iter()
                .filter_map(|(_, place)| self.exchanges.at(place as usize))
                .map(|e| Exchange { connection: self.connection(e.connection).map_or(0, |c| c.id), ..e.clone() })
                .collect();
        }
        self.sums = Arc::new(Sums::of(self.connections()));
        self.changed(Change::Sums);
    }

    /// Neither filter nor followed connection.
    pub(crate) fn show_everything(&mut self) -> Vec<Effect> {
        let place = self.frame_at(self.states.frames.list.at);
        self.followed = None;
        let effects = self.filter_by("");
        if let Some(place) = place {
            let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
            self.states.frames.list.jump(row, len, page);
        }
        effects
    }

    /// Narrows everything to a connection, or widens again where it is the one already.
    pub(crate) fn follow(&mut self, followed_as: Option<u32>) {
        let Some(connection) = followed_as.and_then(|id| self.connection(id)) else {
            self.complain("this row belongs to no connection");
            return;
        };
        let followed = Followed { ids: connection.followed_as.clone() };
        let id = connection.id;
        self.about = None;
        if self.followed.as_ref() == Some(&followed) {
            self.followed = None;
            self.say("all connections again");
        } else {
            self.followed = Some(followed);
            self.say(format!("connection {id} alone; {} shows all again", self.keys.first(Action::Everything)));
        }
        self.narrow();
    }

    /// Sets the filter. The frames that pass come later.
    pub(crate) fn filter_by(&mut self, text: &str) -> Vec<Effect> {
        self.filter = Filter { text: text.trim().to_owned(), generation: self.filter.generation + 1, ..Filter::default() };
        self.narrow();
        let mut effects = vec![Effect::Filter { generation: self.filter.generation, text: self.filter.text.clone() }];
        if self.filter.is_on() {
            let text = self.filter.text.clone();
            self.history.retain(|h| *h != text);
            self.history.push(text);
            effects.push(Effect::Keep(Keep::Filters(self.history.clone())));
        }
        effects
    }

    /// Makes the list of shown frames anew.
    pub(super) fn narrow(&mut self) {
        let place = self.frame_at(self.states.frames.list.at);
        self.scanned = 0;
        self.shown = (self.filter.is_on() || self.followed.is_some()).then(Vec::new);
        self.sorting.outdated();
        self.changed(Change::Narrowed);
        self.choose();
        self.scan();
        if let Some(place) = place {
            let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
            self.states.frames.list.jump(row, len, page);
        }
    }

    /// Looks at frames that came since, for the list of shown ones.
    pub(super) fn scan(&mut self) {
        let Some(mut shown) = self.shown.take() else { return };
        if self.filter.is_on() {
            let upto = self.filter.found.len().min(self.scanned + SCAN_STEP);
            let found = self.filter.found.get(self.scanned..upto).unwrap_or(&[]);
            shown.extend(found.iter().filter(|i| self.index.at(**i as usize).is_some_and(|e| self.concerns(e.connection))));
            self.scanned = upto;
        } else {
            let upto = self.index.len().min(self.scanned + SCAN_STEP);
            let new = self.index.from(self.scanned).take_while(|(i, _)| *i < upto).filter(|(_, e)| self.concerns(e.connection));
            shown.extend(new.map(|(i, _)| i as u32));
            self.scanned = upto;
        }
        self.shown = Some(shown);
    }

    /// Whether there are frames that were not looked at yet for the list of shown ones.
    pub(super) fn is_scanning(&self) -> bool {
        self.shown.is_some() && self.scanned < if self.filter.is_on() { self.filter.found.len() } else { self.index.len() }
    }

    /// Sorts the frame list.
    pub(crate) fn sort_frames(&mut self, by: By, down: bool) -> Vec<Effect> {
        let place = self.frame_at(self.states.frames.list.at).filter(|_| self.states.frames.list.at > 0);
        if by == self.sorting.by && self.sorting.sorted.is_some() && (by != By::Number || down) {
            self.sorting.down = down;
        } else {
            self.sorting.outdated();
            (self.sorting.by, self.sorting.down) = (by, down);
        }
        if let Some(place) = place {
            self.show_place(place);
        }
        self.tailing &= !self.sorting.is_on();
        vec![Effect::EndSort(self.sorting.generation)]
    }
}
