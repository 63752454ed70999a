//! Transforms a frame's tree to the form that Wireshark gives it, for JSON, EK and PDML, so that programs made for
//! tshark find each field at the same path. `--json-names short` keeps our form.
//!
//! A subtree that is not a field of Wireshark's is *text* there: its key is what the detail pane shows, as in `"Create
//! Request (0x05)"`. Other differences have a row in `RULES`. Two cases have code of their own: bodies of SMB2, which
//! Wireshark names by their command, and fields that the analysis reports apart from the layer in which Wireshark has
//! them.

use rdmascope_dissector::field::{Base, Def, FieldDef, Kind, OURS, Privacy, id_of};
use rdmascope_dissector::render::{Style, show};
use rdmascope_dissector::trace::{Node, NodeValue, Tree};

/// Transformation of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The node is replaced by its children.
    Splice,
    /// The child of the first id replaces the node and gets the other children. All of it then becomes part of the
    /// preceding node of the second id.
    LedBy(u32, u32),
    /// Its children are put into one subtree, which is a text.
    Wrap,
    /// A list of attributes of NFS 4: each belongs to the word of the mask that has its bit.
    Attributes,
    /// Offset and length in front of a subtree become part of it.
    Place,
    /// Fields of TCP that are reported after it.
    Stream,
    /// A message of SMB2.
    Smb2,
    /// A message of RPC.
    Rpc,
}

/// Nodes whose form differs from Wireshark's.
const RULES: [(u32, Form); 12] = [
    (id_of("rdmascope.nfs.operation"), Form::LedBy(id_of("nfs.opcode"), id_of("nfs.ops.count"))),
    (id_of("rdmascope.nfs.bitmap4"), Form::Splice),
    (id_of("rdmascope.nfs.fattr4"), Form::Attributes),
    (id_of("rdmascope.rpc.auth.data"), Form::Splice),
    (id_of("rpcordma.reply_count"), Form::Wrap),
    (id_of("rdmascope.smb2.create_request"), Form::Place),
    (id_of("rdmascope.smb2.create.chain_element"), Form::Place),
    (id_of("rdmascope.smb2.tree_connect_request"), Form::Place),
    (id_of("rdmascope.smb2.find_request"), Form::Place),
    (id_of("tcp"), Form::Stream),
    (id_of("smb2"), Form::Smb2),
    (id_of("rpc"), Form::Rpc),
];

/// Fields whose offset and length come before them, under [`Form::Place`].
const PLACED: [u32; 4] = [id_of("smb2.filename"), id_of("smb2.tag"), id_of("smb2.tree"), id_of("smb2.find.pattern")];
const OFFSET: u32 = id_of("smb2.olb.offset");
const LENGTH: u32 = id_of("smb2.olb.length");
const HEADER: u32 = id_of("rdmascope.smb2.header");
const COMMAND: u32 = id_of("smb2.cmd");
const IS_REPLY: u32 = id_of("smb2.flags.response");
const STREAM: u32 = id_of("rdmascope.stream");
const TIMES: [u32; 2] = [id_of("tcp.time_relative"), id_of("tcp.time_delta")];
const ANALYSIS: u32 = id_of("rdmascope");
const OPAQUE_LENGTH: u32 = id_of("rpc.opaque_length");
const MASK: u32 = id_of("nfs.attr_mask");
const EMPTY_MASK: u32 = id_of("rdmascope.nfs.attr_mask.empty");
const ATTRIBUTE: u32 = id_of("rdmascope.nfs.attribute");
const ATTRIBUTE_NUMBER: u32 = id_of("nfs.attr");
const VALUES: u32 = id_of("rdmascope.nfs.attr_values");

/// Fields that the analysis reports for a frame, and that Wireshark has in the header of the reply.
const OF_SMB2: [u32; 3] = [id_of("smb2.response_to"), id_of("smb2.response_in"), id_of("smb2.time")];
/// The same of RPC.
const OF_RPC: [u32; 3] = [id_of("rpc.reqframe"), id_of("rpc.repframe"), id_of("rpc.time")];

/// Wireshark's names for the bodies of SMB2, by command, [MS-SMB2] 2.2.1.
const BODIES: [&str; 19] = [
    "Negotiate Protocol",
    "Session Setup",
    "Session Logoff",
    "Tree Connect",
    "Tree Disconnect",
    "Create",
    "Close",
    "Flush",
    "Read",
    "Write",
    "Lock",
    "Ioctl",
    "Cancel",
    "KeepAlive",
    "Find",
    "Notify",
    "GetInfo",
    "SetInfo",
    "Break",
];

/// A subtree that is only there in Wireshark's form.
static TEXT: FieldDef = FieldDef {
    name: "rdmascope.text.only",
    id: id_of("rdmascope.text.only"),
    label: "",
    kind: Kind::None,
    base: Base::None,
    mask: 0,
    width: 0,
    values: &[],
    spec: "rdmascope",
    privacy: Privacy::Keep,
    hidden: false,
};

/// True if a node is text in Wireshark's form: a subtree of a protocol for which Wireshark has no field.
pub fn is_text_only(def: Def) -> bool {
    def.kind == Kind::None && def.name.strip_prefix(OURS).is_some_and(|rest| rest.contains('.'))
}

/// Brings trees into Wireshark's form. Reused from frame to frame, it stops allocating.
#[derive(Clone, Default)]
pub struct Shape {
    /// True if our form is kept.
    short: bool,
    old: Vec<Node>,
    /// Keys of nodes that have more than their label, by the node's index.
    keys: Vec<(usize, String)>,
    /// The nodes that are reported elsewhere, by their index in `old`.
    moved: Vec<usize>,
    /// All nodes that do not stay as they are, by their index in `old`.
    special: Vec<usize>,
    /// For each SMB2 header in the frame, its range in `moved`.
    groups: Vec<(usize, usize)>,
    headers: usize,
    body: Option<String>,
}

impl Shape {
    /// `short`: our names, our form.
    pub fn new(short: bool) -> Self {
        Self { short, ..Self::default() }
    }

    /// True if our names and form are kept.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// The text that replaces the name of a node that is not a field.
    pub fn key<'a>(&'a self, tree: &'a Tree, index: usize) -> Option<(&'a str, &'a str)> {
        let node = tree.nodes.get(index)?;
        if self.short || node.depth == 0 || !is_text_only(node.def) {
            return None;
        }
        match self.keys.binary_search_by_key(&index, |(at, _)| *at) {
            Ok(at) => Some((&self.keys[at].1, "")),
            Err(_) => Some((node.def.label, tree.note(node))),
        }
    }

    /// Brings a tree into Wireshark's form.
    pub fn apply(&mut self, tree: &mut Tree) {
        self.keys.clear();
        if self.short || !self.find_special(&tree.nodes) {
            return;
        }
        self.body = None;
        std::mem::swap(&mut self.old, &mut tree.nodes);
        tree.nodes.clear();
        let end = self.old.len();
        self.part(tree, 0, end, 0);
    }

    /// Finds the nodes that do not stay as they are; among them those in the layer of the analysis that belong to other
    /// layers. False if all nodes stay.
    fn find_special(&mut self, nodes: &[Node]) -> bool {
        self.moved.clear();
        self.special.clear();
        self.groups.clear();
        self.headers = 0;
        let (mut inside, mut differs) = (false, false);
        for (i, node) in nodes.iter().enumerate() {
            let id = node.def.id;
            if node.depth == 0 {
                inside = id == ANALYSIS;
            }
            if !is_marked(id) {
                if is_text_only(node.def) {
                    self.special.push(i);
                }
                continue;
            }
            if id == OPAQUE_LENGTH {
                differs = true;
                if i > 0 && self.special.last() != Some(&(i - 1)) {
                    self.special.push(i - 1);
                }
            }
            self.headers += usize::from(id == HEADER);
            if inside && (OF_SMB2.contains(&id) || OF_RPC.contains(&id)) {
                if id == OF_SMB2[0] || id == OF_SMB2[1] {
                    self.groups.push((self.moved.len(), self.moved.len()));
                }
                self.moved.push(i);
                if let (Some(group), true) = (self.groups.last_mut(), OF_SMB2.contains(&id)) {
                    group.1 = self.moved.len();
                }
                self.special.push(i);
            } else if has_rule(id) {
                differs = true;
                self.special.push(i);
            } else if is_text_only(node.def) {
                self.special.push(i);
            }
        }
        differs
    }

    fn end_of(&self, at: usize) -> usize {
        let depth = self.old[at].depth;
        self.old[at + 1..].iter().position(|n| n.depth <= depth).map_or(self.old.len(), |n| at + 1 + n)
    }

    fn child(&self, from: usize, to: usize, id: u32) -> Option<usize> {
        let depth = self.old.get(from)?.depth;
        (from..to).find(|i| self.old[*i].depth == depth && self.old[*i].def.id == id)
    }

    fn push(&mut self, tree: &mut Tree, at: usize, shift: i16) {
        let node = self.old[at];
        tree.nodes.push(Node { depth: deeper(node.depth, shift), ..node });
    }

    fn push_text(&mut self, tree: &mut Tree, like: usize, depth: i16, key: String) {
        let mut node = self.old[like];
        node.def = &TEXT;
        node.value = NodeValue::None;
        node.note = (0, 0);
        node.depth = u8::try_from(depth.max(0)).unwrap_or(u8::MAX);
        self.keys.push((tree.nodes.len(), key));
        tree.nodes.push(node);
    }

    /// Copies the nodes from `from` to `to`, siblings with their contents, `shift` deeper.
    fn part(&mut self, tree: &mut Tree, from: usize, to: usize, shift: i16) {
        let mut at = from;
        while at < to {
            let next = self.special.partition_point(|special| *special < at);
            let plain = self.special.get(next).map_or(to, |special| (*special).min(to));
            let copied = tree.nodes.len();
            tree.nodes.extend_from_slice(&self.old[at..plain]);
            if shift != 0 {
                tree.nodes[copied..].iter_mut().for_each(|node| node.depth = deeper(node.depth, shift));
            }
            at = plain;
            if at < to {
                let end = self.end_of(at).min(to);
                at = self.node(tree, at, end, shift);
            }
        }
    }

    /// Copies one node with its contents. Returns the index of the next node.
    fn node(&mut self, tree: &mut Tree, at: usize, end: usize, shift: i16) -> usize {
        let node = self.old[at];
        let id = node.def.id;
        if self.moved.binary_search(&at).is_ok() {
            return end;
        }
        let depth = i16::from(node.depth) + shift;
        if at + 1 < end && self.old[at + 1].def.id == OPAQUE_LENGTH && has_contents(&node) {
            self.opaque(tree, at, end, shift);
            return end;
        }
        if node.depth > 0 && is_text_only(node.def) {
            self.text(tree, at, end, shift);
        }
        match rule(id) {
            None => {
                self.push(tree, at, shift);
                self.part(tree, at + 1, end, shift);
            }
            Some(Form::Splice) => self.part(tree, at + 1, end, shift - 1),
            Some(Form::LedBy(lead, above)) => {
                let before = tree.nodes.iter().rev().find(|n| i16::from(n.depth) <= depth);
                let below = before.is_some_and(|n| i16::from(n.depth) == depth && n.def.id == above);
                self.led(tree, at, end, lead, shift + i16::from(below));
            }
            Some(Form::Wrap) => {
                self.push(tree, at, shift);
                if at + 1 < end {
                    let segments =
                        (at + 1..end).filter(|i| self.old[*i].def.name == "rdmascope.rpcordma.segment").count();
                    self.push_text(tree, at, depth + 1, chunk(segments));
                    self.part(tree, at + 1, end, shift + 1);
                }
            }
            Some(Form::Attributes) => self.attributes(tree, at, end, shift),
            Some(Form::Place) => {
                self.push(tree, at, shift);
                self.placed(tree, at + 1, end, shift);
            }
            Some(Form::Stream) => {
                self.push(tree, at, shift);
                self.part(tree, at + 1, end, shift);
                if self.old.get(end).is_some_and(|n| n.def.id == STREAM && n.depth == node.depth) {
                    let last = self.end_of(end);
                    self.stream(tree, end + 1, last, shift);
                    return last;
                }
            }
            Some(Form::Rpc) => {
                self.push(tree, at, shift);
                self.part(tree, at + 1, end, shift);
                for i in self.moved.clone() {
                    if OF_RPC.contains(&self.old[i].def.id) {
                        self.push(tree, i, depth + 1 - i16::from(self.old[i].depth));
                    }
                }
            }
            Some(Form::Smb2) => {
                self.push(tree, at, shift);
                self.smb2(tree, at + 1, end, shift);
            }
        }
        end
    }

    fn led(&mut self, tree: &mut Tree, at: usize, end: usize, lead: u32, shift: i16) {
        match self.child(at + 1, end, lead) {
            None => {
                self.push(tree, at, shift);
                self.part(tree, at + 1, end, shift);
            }
            Some(first) => {
                let behind = self.end_of(first).min(end);
                self.push(tree, first, shift - 1);
                self.part(tree, first + 1, behind, shift - 1);
                self.part(tree, at + 1, first, shift);
                self.part(tree, behind, end, shift);
            }
        }
    }

    /// Makes text nodes that have a number or a name.
    fn text(&mut self, tree: &Tree, at: usize, end: usize, shift: i16) {
        let depth = i16::from(self.old[at].depth) + shift;
        let number = |id: u32| {
            self.old[at + 1..end].iter().find(|n| n.def.id == id).and_then(|n| match n.value {
                NodeValue::U(v) => Some(v),
                _ => None,
            })
        };
        let key = match self.old[at].def.name {
            "rdmascope.rpcordma.write_chunk" => {
                chunk((at + 1..end).filter(|i| self.old[*i].def.name == "rdmascope.rpcordma.segment").count())
            }
            "rdmascope.rpcordma.segment" => {
                let before = tree.nodes.iter().rev().take_while(|n| i16::from(n.depth) >= depth);
                format!("RDMA segment {}", before.filter(|n| n.def.name == "rdmascope.rpcordma.segment").count())
            }
            "rdmascope.rpcordma.read_segment" => {
                format!("Read chunk: (position {})", number(id_of("rpcordma.position")).unwrap_or(0))
            }
            "rdmascope.rpc.credentials" | "rdmascope.rpc.verifier" => self.old[at].def.label.into(),
            "rdmascope.rpc.auth.gids" => {
                format!("Auxiliary GIDs ({})", number(id_of("rdmascope.xdr.count")).unwrap_or(0))
            }
            _ => match self.body.take() {
                Some(body) if self.old[at].def.id != HEADER => body,
                body => {
                    self.body = body;
                    return;
                }
            },
        };
        self.keys.push((tree.nodes.len(), key));
    }

    /// Opaque data of XDR: length, contents and padding, put into a text node that shows the contents.
    fn opaque(&mut self, tree: &mut Tree, at: usize, end: usize, shift: i16) {
        let node = self.old[at];
        let stored = tree.stored(&node);
        let value = match node.def.kind {
            Kind::Str | Kind::Utf16 => show(node.def, stored, Style::Json),
            _ => "<DATA>".into(),
        };
        let value = if value.is_empty() { "<EMPTY>" } else { &value };
        let key = format!("{}: {value}", node.def.label);
        let depth = i16::from(node.depth) + shift;
        self.push_text(tree, at, depth, key);
        let behind = self.end_of(at + 1).min(end);
        self.push(tree, at + 1, shift);
        self.push(tree, at, shift + 1);
        self.part(tree, behind, end, shift);
    }

    /// A mask, with the attributes of its bits.
    fn attributes(&mut self, tree: &mut Tree, at: usize, end: usize, shift: i16) {
        let depth = self.old[at].depth + 1;
        let mut words: u64 = 0;
        let values = self.child(at + 1, end, VALUES);
        let mut i = at + 1;
        while i < end {
            let behind = self.end_of(i).min(end);
            if self.old[i].def.id == MASK && self.old[i].depth == depth {
                self.push(tree, i, shift - 1);
                self.part(tree, i + 1, behind, shift - 1);
                if let Some(values) = values {
                    let last = self.end_of(values).min(end);
                    let mut a = values + 1;
                    while a < last {
                        let next = self.end_of(a).min(last);
                        let is_of = self
                            .child(a + 1, next, ATTRIBUTE_NUMBER)
                            .is_some_and(|n| word_of(&self.old[n]) == Some(words));
                        if self.old[a].def.id == ATTRIBUTE && is_of {
                            // from two below the list to one below the word
                            self.led(tree, a, next, ATTRIBUTE_NUMBER, shift - 1);
                        }
                        a = next;
                    }
                }
                words += 1;
            } else if values != Some(i) {
                words += u64::from(self.old[i].def.id == EMPTY_MASK);
                self.part(tree, i, behind, shift - 1);
            } else if words == 0 {
                return self.part(tree, i, end, shift - 1);
            }
            i = behind;
        }
        // attributes that no word of the mask announced stay in a list of their own
        if let Some(values) = values {
            let last = self.end_of(values).min(end);
            let announced = |a: usize| {
                let word =
                    self.child(a + 1, self.end_of(a).min(last), ATTRIBUTE_NUMBER).and_then(|n| word_of(&self.old[n]));
                word.is_some_and(|word| word < words)
            };
            let mut rest: Vec<(usize, usize)> = Vec::new();
            let mut a = values + 1;
            while a < last {
                let next = self.end_of(a).min(last);
                if self.old[a].def.id != ATTRIBUTE || !announced(a) {
                    rest.push((a, next));
                }
                a = next;
            }
            for (from, to) in rest {
                self.part(tree, from, to, shift - 2);
            }
        }
    }

    /// Moves the offset and length at the beginning into the node that they describe.
    fn placed(&mut self, tree: &mut Tree, from: usize, to: usize, shift: i16) {
        let depth = self.old.get(from).map_or(0, |n| n.depth);
        let target = (from..to).find(|i| self.old[*i].depth == depth && PLACED.contains(&self.old[*i].def.id));
        let place = self.child(from, to, OFFSET).filter(|i| self.old.get(i + 1).is_some_and(|n| n.def.id == LENGTH));
        let (Some(target), Some(place)) = (target, place) else { return self.part(tree, from, to, shift) };
        let mut at = from;
        while at < to {
            let end = self.end_of(at).min(to);
            if at == target {
                self.push(tree, at, shift);
                self.push(tree, place, shift + 1);
                self.push(tree, place + 1, shift + 1);
                self.part(tree, at + 1, end, shift);
            } else if at != place && at != place + 1 {
                self.node(tree, at, end, shift);
            }
            at = end;
        }
    }

    /// Fields of a stream: the times are put into a text node of their own.
    fn stream(&mut self, tree: &mut Tree, from: usize, to: usize, shift: i16) {
        let mut at = from;
        let mut is_open = false;
        while at < to {
            let end = self.end_of(at).min(to);
            if TIMES.contains(&self.old[at].def.id) {
                if !std::mem::replace(&mut is_open, true) {
                    self.push_text(tree, at, i16::from(self.old[at].depth) + shift, "Timestamps".into());
                }
                self.push(tree, at, shift + 1);
            } else {
                self.node(tree, at, end, shift);
            }
            at = end;
        }
    }

    /// Headers with their bodies.
    fn smb2(&mut self, tree: &mut Tree, from: usize, to: usize, shift: i16) {
        let mut at = from;
        while at < to {
            let end = self.end_of(at).min(to);
            if self.old[at].def.id == HEADER {
                self.push(tree, at, shift);
                self.part(tree, at + 1, end, shift);
                self.headers -= 1;
                // fields of the last messages only belong to the last headers
                if let Some((first, last)) =
                    self.groups.len().checked_sub(self.headers + 1).and_then(|g| self.groups.get(g)).copied()
                {
                    for i in first..last {
                        let node = self.moved[i];
                        self.push(
                            tree,
                            node,
                            i16::from(self.old[at].depth) + 1 + shift - i16::from(self.old[node].depth),
                        );
                    }
                }
                let number = |id: u32| self.old[at..end].iter().find(|n| n.def.id == id).map(|n| n.value);
                if let (Some(NodeValue::U(command)), Some(NodeValue::U(reply))) = (number(COMMAND), number(IS_REPLY)) {
                    let name = BODIES.get(command as usize).unwrap_or(&"unknown");
                    self.body =
                        Some(format!("{name} {} (0x{command:02x})", if reply != 0 { "Response" } else { "Request" }));
                }
            } else {
                self.node(tree, at, end, shift);
            }
            at = end;
        }
        self.body = None;
    }
}

fn deeper(depth: u8, shift: i16) -> u8 {
    u8::try_from(i16::from(depth).saturating_add(shift).max(0)).unwrap_or(u8::MAX)
}

fn chunk(segments: usize) -> String {
    format!("Write chunk ({segments} segment{})", if segments == 1 { "" } else { "s" })
}

fn word_of(node: &Node) -> Option<u64> {
    match node.value {
        NodeValue::U(number) => Some(number / 32),
        _ => None,
    }
}

fn has_contents(node: &Node) -> bool {
    node.depth > 0 && matches!(node.def.kind, Kind::Str | Kind::Utf16 | Kind::Bytes)
}

fn rule(id: u32) -> Option<Form> {
    RULES.iter().find(|(of, _)| *of == id).map(|(_, form)| *form)
}

#[inline]
fn has_rule(id: u32) -> bool {
    is_marked(id) && rule(id).is_some()
}

/// False if [`Shape::find_special`] need not look at a node with this id, unless it is text. Asked of every node.
#[inline(always)]
fn is_marked(id: u32) -> bool {
    MARKED[(id >> 6) as usize % MARKED.len()] & 1 << (id % 64) != 0
}

/// The bits of all ids that are looked for: those that have a rule, and others.
const MARKED: [u64; 16] = {
    const OTHERS: [u32; 8] =
        [OPAQUE_LENGTH, HEADER, OF_SMB2[0], OF_SMB2[1], OF_SMB2[2], OF_RPC[0], OF_RPC[1], OF_RPC[2]];
    let (mut set, mut i) = ([0; 16], 0);
    while i < RULES.len() + OTHERS.len() {
        let id = if i < RULES.len() { RULES[i].0 } else { OTHERS[i - RULES.len()] };
        set[(id >> 6) as usize % 16] |= 1 << (id % 64);
        i += 1;
    }
    set
};
