//! The places of a source file that are mutated, and its text with all mutants in it.
//!
//! | code | with its mutants |
//! | --- | --- |
//! | `a < b` | `crate::mutant::lt(7, &(a), &(b))` |
//! | `a && b` | `(((a) != crate::mutant::m(7)) && ((b) != crate::mutant::m(7))) != crate::mutant::m(7)`, by De Morgan |
//! | `a += b` | `a = crate::mutant::add_to(7, (b), a)` |
//! | `x if a =>` | `x if crate::mutant::guard(7, a) =>` |
//! | `fn f() -> bool { … }` | `fn f() -> bool { if crate::mutant::m(7) { return true; } … }` |
//!
//! No line is added, so that lines are the same in both.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Token, UnOp};

/// What is mutated, in the order in which it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Comparison,
    Guard,
    Logic,
    Not,
    Body,
    Arithmetic,
    Bits,
}

impl Kind {
    pub const ALL: [Self; 7] = [Self::Comparison, Self::Guard, Self::Logic, Self::Not, Self::Body, Self::Arithmetic, Self::Bits];

    pub fn name(self) -> &'static str {
        match self {
            Self::Comparison => "comparison",
            Self::Guard => "guard",
            Self::Logic => "logic",
            Self::Not => "not",
            Self::Body => "body",
            Self::Arithmetic => "arithmetic",
            Self::Bits => "bits",
        }
    }
}

/// A place with its mutants.
#[derive(Clone, Debug)]
pub struct Place {
    pub kind: Kind,
    /// Line, from 1.
    pub line: usize,
    /// The function that it is in.
    pub function: String,
    /// The code, on one line.
    pub code: String,
    /// What each mutant has in its place.
    pub mutants: Vec<&'static str>,
    edits: Vec<Edit>,
    /// Text that goes away.
    removed: Option<Range<usize>>,
}

#[derive(Clone, Debug)]
struct Edit {
    at: usize,
    /// At one offset: what ends, what stands between, what begins.
    class: u8,
    /// With `{id}` where the number goes.
    text: String,
}

/// A source file.
pub struct Source {
    pub text: String,
    pub places: Vec<Place>,
    /// Operators that are not mutated, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
}

/// Its text with mutants, and where they are.
pub struct Mutated {
    pub text: String,
    /// First and last byte of each place, by its index.
    pub ranges: HashMap<usize, Range<usize>>,
}

impl Source {
    /// Finds the places.
    pub fn new(text: String) -> Result<Self, syn::Error> {
        let file = syn::parse_file(&text)?;
        let mut finder = Finder { text: &text, places: Vec::new(), left_out: BTreeMap::new(), path: Vec::new(), counted: None };
        finder.visit_file(&file);
        let Finder { places, left_out, .. } = finder;
        Ok(Self { places, left_out, text })
    }

    /// The text with the mutants of the places that have a number.
    pub fn mutate(&self, number: impl Fn(usize) -> Option<u32>) -> Mutated {
        let mut edits: Vec<(usize, u8, isize, usize, String)> = Vec::new();
        let mut removed: Vec<Range<usize>> = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            let Some(id) = number(index) else { continue };
            removed.extend(place.removed.clone());
            for edit in &place.edits {
                // an outer place was found first: it begins first and ends last
                let order = if edit.class == 0 { -(index as isize) } else { index as isize };
                edits.push((edit.at, edit.class, order, index, edit.text.replace("{id}", &id.to_string())));
            }
        }
        edits.sort();
        removed.sort_by_key(|range| range.start);
        let mut out = Mutated { text: String::new(), ranges: HashMap::new() };
        let mut removed = removed.into_iter().peekable();
        let mut at = 0;
        let mut copy = |out: &mut String, to: usize| {
            while let Some(range) = removed.next_if(|range| range.start < to) {
                out.push_str(&self.text[at..range.start]);
                at = range.end;
            }
            if at < to {
                out.push_str(&self.text[at..to]);
                at = to;
            }
        };
        for (offset, _, _, index, text) in edits {
            copy(&mut out.text, offset);
            let start = out.text.len();
            out.text.push_str(&text);
            let range = out.ranges.entry(index).or_insert(start..start);
            range.end = out.text.len();
        }
        copy(&mut out.text, self.text.len());
        out
    }
}

struct Finder<'t> {
    text: &'t str,
    places: Vec<Place>,
    left_out: BTreeMap<&'static str, usize>,
    /// Names of the modules, types and functions around.
    path: Vec<String>,
    /// Why what is visited is only counted.
    counted: Option<&'static str>,
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if items with these attributes are for tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let path = a.path();
        let of_test =
            || a.meta.require_list().is_ok_and(|list| list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|w| w == "test"));
        path.is_ident("test") || (path.is_ident("cfg") && of_test())
    })
}

/// True if a condition has a `let`.
fn has_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

/// A place in memory whose code can be repeated.
fn is_repeatable(e: &Expr) -> bool {
    match e {
        Expr::Path(_) => true,
        Expr::Field(f) => is_repeatable(&f.base),
        Expr::Index(i) => is_repeatable(&i.expr) && !matches!(*i.index, Expr::Block(_) | Expr::Closure(_)),
        Expr::Unary(u) => matches!(u.op, UnOp::Deref(_)) && is_repeatable(&u.expr),
        Expr::Paren(p) => is_repeatable(&p.expr),
        _ => false,
    }
}

/// Function of the runtime, and the operators of the mutants.
fn binary(op: &BinOp) -> Option<(Kind, &'static str, &'static [&'static str])> {
    Some(match op {
        BinOp::Lt(_) => (Kind::Comparison, "lt", &["<=", ">="]),
        BinOp::Le(_) => (Kind::Comparison, "le", &["<", ">"]),
        BinOp::Gt(_) => (Kind::Comparison, "gt", &[">=", "<="]),
        BinOp::Ge(_) => (Kind::Comparison, "ge", &[">", "<"]),
        BinOp::Eq(_) => (Kind::Comparison, "eq", &["!="]),
        BinOp::Ne(_) => (Kind::Comparison, "ne", &["=="]),
        BinOp::And(_) => (Kind::Logic, "", &["||"]),
        BinOp::Or(_) => (Kind::Logic, "", &["&&"]),
        BinOp::Add(_) => (Kind::Arithmetic, "add", &["-"]),
        BinOp::Sub(_) => (Kind::Arithmetic, "sub", &["+"]),
        BinOp::Mul(_) => (Kind::Arithmetic, "mul", &["/"]),
        BinOp::Div(_) => (Kind::Arithmetic, "div", &["*"]),
        BinOp::Rem(_) => (Kind::Arithmetic, "rem", &["/"]),
        BinOp::BitAnd(_) => (Kind::Bits, "and", &["|"]),
        BinOp::BitOr(_) => (Kind::Bits, "or", &["&"]),
        BinOp::BitXor(_) => (Kind::Bits, "xor", &["|"]),
        BinOp::Shl(_) => (Kind::Bits, "shl", &[">>"]),
        BinOp::Shr(_) => (Kind::Bits, "shr", &["<<"]),
        BinOp::AddAssign(_) => (Kind::Arithmetic, "add", &["-="]),
        BinOp::SubAssign(_) => (Kind::Arithmetic, "sub", &["+="]),
        BinOp::MulAssign(_) => (Kind::Arithmetic, "mul", &["/="]),
        BinOp::DivAssign(_) => (Kind::Arithmetic, "div", &["*="]),
        BinOp::RemAssign(_) => (Kind::Arithmetic, "rem", &["/="]),
        BinOp::BitAndAssign(_) => (Kind::Bits, "and", &["|="]),
        BinOp::BitOrAssign(_) => (Kind::Bits, "or", &["&="]),
        BinOp::BitXorAssign(_) => (Kind::Bits, "xor", &["|="]),
        _ => return None,
    })
}

fn is_assignment(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_) | SubAssign(_) | MulAssign(_) | DivAssign(_) | RemAssign(_) | BitAndAssign(_) | BitOrAssign(_) | BitXorAssign(_)
    )
}

/// Values that a function of this type can return instead of its own.
fn values(output: &syn::ReturnType) -> Vec<&'static str> {
    let syn::ReturnType::Type(_, t) = output else { return vec![""] };
    match &**t {
        syn::Type::Tuple(t) if t.elems.is_empty() => vec![""],
        syn::Type::Reference(r) if matches!(&*r.elem, syn::Type::Path(p) if p.path.is_ident("str")) => vec!["\"\""],
        syn::Type::Path(p) => {
            let Some(last) = p.path.segments.last() else { return Vec::new() };
            match last.ident.to_string().as_str() {
                "bool" => vec!["true", "false"],
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => vec!["0", "1"],
                "Option" => vec!["None"],
                "Result" | "Self" => Vec::new(),
                _ => vec!["Default::default()"],
            }
        }
        _ => Vec::new(),
    }
}

impl Finder<'_> {
    fn range(&self, of: &impl Spanned) -> Range<usize> {
        of.span().byte_range()
    }

    fn function(&self) -> String {
        self.path.join("::")
    }

    fn leave_out(&mut self, why: &'static str, count: usize) {
        *self.left_out.entry(why).or_default() += count;
    }

    fn place(
        &mut self,
        kind: Kind,
        whole: Range<usize>,
        mutants: &[&'static str],
        edits: Vec<(usize, u8, String)>,
        removed: Option<Range<usize>>,
    ) {
        if let Some(why) = self.counted {
            return self.leave_out(why, 1);
        }
        self.places.push(Place {
            kind,
            line: self.text[..whole.start].matches('\n').count() + 1,
            function: self.function(),
            code: one_line(&self.text[whole]),
            mutants: mutants.to_vec(),
            edits: edits.into_iter().map(|(at, class, text)| Edit { at, class, text }).collect(),
            removed,
        });
    }

    /// Visits what is only counted.
    fn count(&mut self, why: &'static str, visit: impl FnOnce(&mut Self)) {
        let before = self.counted.replace(why);
        visit(self);
        self.counted = before;
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let inside = self.range(block).start + 1;
        let text = one_line(&self.text[self.range(block)]);
        if block.stmts.is_empty() || signature.output.span().source_text().is_some_and(|t| t.contains("impl ") || t.contains('!')) {
            return;
        }
        for value in values(&signature.output) {
            if text == format!("{{ {value} }}") {
                continue;
            }
            let whole = self.range(signature);
            let edit = format!(" if crate::mutant::m({{id}}) {{ return {value}; }}");
            let shown = match value {
                "" => "{}",
                "\"\"" => "{ \"\" }",
                "true" => "{ true }",
                "false" => "{ false }",
                "0" => "{ 0 }",
                "1" => "{ 1 }",
                "None" => "{ None }",
                _ => "{ Default::default() }",
            };
            self.place(Kind::Body, whole, &[shown], vec![(inside, 2, edit)], None);
        }
    }

    fn named(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }

    fn function_of(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, block: &syn::Block) {
        if is_test(attributes) {
            return;
        }
        self.named(signature.ident.to_string(), |this| {
            if signature.constness.is_some() {
                return this.count("const fn", |this| visit::visit_block(this, block));
            }
            this.body(signature, block);
            visit::visit_block(this, block);
        });
    }
}

/// Arguments of a macro that are expressions.
struct Arguments(Vec<Expr>);

impl syn::parse::Parse for Arguments {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self(Punctuated::<Expr, Token![,]>::parse_terminated(input)?.into_iter().collect()))
    }
}

/// `matches!(e, pattern if guard)`.
struct Matches(Expr, Option<Expr>);

impl syn::parse::Parse for Matches {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let e = input.parse()?;
        input.parse::<Token![,]>()?;
        syn::Pat::parse_multi_with_leading_vert(input)?;
        let guard = if input.parse::<Option<Token![if]>>()?.is_some() { Some(input.parse()?) } else { None };
        input.parse::<Option<Token![,]>>()?;
        Ok(Self(e, guard))
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.named(item.ident.to_string(), |this| visit::visit_item_mod(this, item));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function_of(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function_of(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function_of(&item.attrs, &item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        let of = |path: &syn::Path| path.segments.last().map_or_else(String::new, |s| s.ident.to_string());
        let name = if let syn::Type::Path(p) = &*item.self_ty { of(&p.path) } else { one_line(&self.text[self.range(&item.self_ty)]) };
        let name = item.trait_.as_ref().map_or_else(|| name.clone(), |(_, path, _)| format!("{name} as {}", of(path)));
        self.named(name, |this| item.items.iter().for_each(|i| this.visit_impl_item(i)));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.named(item.ident.to_string(), |this| item.items.iter().for_each(|i| this.visit_trait_item(i)));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.count("constant", |this| visit::visit_expr(this, &item.expr));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.count("constant", |this| visit::visit_expr(this, &item.expr));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.count("constant", |this| visit::visit_expr(this, &item.expr));
    }

    fn visit_variant(&mut self, _: &'ast syn::Variant) {}

    fn visit_expr_const(&mut self, e: &'ast syn::ExprConst) {
        self.count("constant", |this| visit::visit_block(this, &e.block));
    }

    fn visit_expr_repeat(&mut self, e: &'ast syn::ExprRepeat) {
        self.visit_expr(&e.expr);
        self.count("array length", |this| this.visit_expr(&e.len));
    }

    fn visit_type(&mut self, t: &'ast syn::Type) {
        self.count("array length", |this| visit::visit_type(this, t));
    }

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {
        self.leave_out("macro definition", 1);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let name = mac.path.segments.last().map_or_else(String::new, |s| s.ident.to_string());
        let whole = match name.as_str() {
            "format" | "format_args" | "write" | "writeln" | "vec" => mac.parse_body::<Arguments>().ok().map(|Arguments(list)| list),
            "matches" => mac.parse_body::<Matches>().ok().map(|Matches(e, guard)| std::iter::once(e).chain(guard).collect()),
            _ => None,
        };
        match whole {
            Some(list) => {
                for e in &list {
                    // the parts live shorter than the file, and only their spans are kept
                    let mut inner = Finder {
                        text: self.text,
                        places: Vec::new(),
                        left_out: BTreeMap::new(),
                        path: self.path.clone(),
                        counted: self.counted,
                    };
                    inner.visit_expr(e);
                    self.places.append(&mut inner.places);
                    inner.left_out.into_iter().for_each(|(why, n)| self.leave_out(why, n));
                }
            }
            None => {
                let text = mac.tokens.to_string();
                let operators = ["<", ">", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%"];
                self.leave_out("macro call", text.split_whitespace().filter(|word| operators.contains(word)).count());
            }
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            let whole = self.range(&**guard);
            if has_let(guard) {
                self.leave_out("let in a condition", 1);
            } else {
                let edits = vec![(whole.start, 2, "crate::mutant::guard({id}, ".to_string()), (whole.end, 0, ")".to_string())];
                self.place(Kind::Guard, whole, &["true", "false"], edits, None);
            }
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_unary(&mut self, e: &'ast syn::ExprUnary) {
        let (kind, name, mutant) = match e.op {
            UnOp::Not(_) => (Kind::Not, "not", "without !"),
            UnOp::Neg(_) => (Kind::Arithmetic, "neg", "without -"),
            _ => return visit::visit_expr_unary(self, e),
        };
        let (whole, op) = (self.range(e), self.range(&e.op));
        let edits = vec![(whole.start, 2, format!("crate::mutant::{name}({{id}}, (")), (whole.end, 0, "))".to_string())];
        self.place(kind, whole, &[mutant], edits, Some(op));
        self.visit_expr(&e.expr);
    }

    fn visit_expr_binary(&mut self, e: &'ast syn::ExprBinary) {
        let (whole, op) = (self.range(e), self.range(&e.op));
        let Some((kind, name, mutants)) = binary(&e.op) else {
            self.leave_out("<<= or >>=", 1);
            return visit::visit_expr_binary(self, e);
        };
        let (begin, between, end, removed) = match kind {
            Kind::Logic if has_let(&e.left) || has_let(&e.right) => {
                self.leave_out("let in a condition", 1);
                return visit::visit_expr_binary(self, e);
            }
            Kind::Logic => {
                let op = &self.text[op.clone()];
                let m = "!= crate::mutant::m({id})";
                ("(((".to_string(), format!(") {m}) {op} (("), format!(") {m})) {m}"), true)
            }
            Kind::Comparison => (format!("crate::mutant::{name}({{id}}, &("), "), &(".to_string(), "))".to_string(), true),
            _ if is_assignment(&e.op) && is_repeatable(&e.left) => {
                let place = &self.text[self.range(&*e.left)];
                (String::new(), format!("= crate::mutant::{name}_to({{id}}, ("), format!("), {place})"), true)
            }
            _ if is_assignment(&e.op) => (format!("crate::mutant::{name}_at({{id}}, &mut ("), "), ".to_string(), ")".to_string(), true),
            _ => (format!("crate::mutant::{name}({{id}}, ("), "), (".to_string(), "))".to_string(), true),
        };
        // a macro of the caller, or code without a place, cannot be edited
        if whole.is_empty() || op.is_empty() {
            return self.leave_out("code without a place", 1);
        }
        let edits = vec![(whole.start, 2, begin), (op.start, 1, between), (whole.end, 0, end)];
        self.place(kind, whole, mutants, edits, removed.then_some(op));
        visit::visit_expr_binary(self, e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a function with all its mutants, numbered from 1, without spaces that do not matter.
    fn mutated(body: &str) -> String {
        let source = Source::new(format!("fn f() -> Vec<u8> {{ Vec::new(); {body} }}")).expect("it is Rust");
        let body = |place: &Place| place.kind == Kind::Body;
        let mut next = 1;
        let numbers: Vec<Option<u32>> = source
            .places
            .iter()
            .map(|place| {
                let id = next;
                next += if body(place) { 0 } else { place.mutants.len() as u32 };
                (!body(place)).then_some(id)
            })
            .collect();
        let text = source.mutate(|index| numbers[index]).text;
        let text = text.trim_start_matches("fn f() -> Vec<u8> { Vec::new(); ");
        let text = text.strip_suffix(" }").unwrap_or(text);
        text.replace("crate::mutant::", "").replace(" )", ")").replace("( ", "(").replace("  ", " ")
    }

    #[test]
    fn each_operator_becomes_a_call() {
        assert_eq!(mutated("a < b"), "lt(1, &(a), &(b))");
        assert_eq!(mutated("a == b.c()"), "eq(1, &(a), &(b.c()))");
        assert_eq!(mutated("a && b"), "(((a) != m(1)) && ((b) != m(1))) != m(1)");
        assert_eq!(mutated("!a.b"), "not(1, (a.b))");
        assert_eq!(mutated("a + b * 2"), "add(1, (a), (mul(2, (b), (2))))");
        assert_eq!(mutated("a.b += 1"), "a.b = add_to(1, (1), a.b)");
        assert_eq!(mutated("*a() -= 1"), "sub_at(1, &mut (*a()), 1)");
        assert_eq!(mutated("match a { b if c => d, e => f }"), "match a { b if guard(1, c) => d, e => f }");
        assert_eq!(mutated("matches!(a, b if c > 1)"), "matches!(a, b if gt(1, &(c), &(1)))");
        assert_eq!(mutated("format!(\"{}\", a == 1)"), "format!(\"{}\", eq(1, &(a), &(1)))");
    }

    #[test]
    fn places_lie_in_each_other() {
        let expected = "(((lt(2, &(a), &(add(4, (b), (1))))) != m(1)) || ((not(5, (c))) != m(1))) != m(1)";
        assert_eq!(mutated("a < b + 1 || !c"), expected);
    }

    #[test]
    fn what_cannot_be_mutated_is_left_alone_and_counted() {
        assert_eq!(mutated("if let Some(a) = b && c {}"), "if let Some(a) = b && c {}");
        assert_eq!(mutated("match a { 1..=2 => {}, _ => {} }"), "match a { 1..=2 => {}, _ => {} }");
        let source = Source::new("const A: u8 = 1 + 2; const fn f() -> bool { 1 < 2 } fn g() -> Self { [0; 1 + 1] }".into());
        let source = source.expect("it is Rust");
        assert_eq!((source.places.len(), source.left_out.values().sum::<usize>()), (0, 3));
        let tests = Source::new("#[cfg(test)] mod tests { fn f() { 1 < 2; } } #[test] fn g() { 1 < 2; }".into());
        assert_eq!(tests.expect("it is Rust").places.len(), 0);
    }

    #[test]
    fn functions_return_something_else() {
        let source = Source::new("fn f() -> bool { g() } fn h() { g() } fn i() {} fn j() -> bool { true }".into()).expect("it is Rust");
        let text = source.mutate(|index| Some(index as u32)).text;
        let m = |id: u32, value: &str| format!("if crate::mutant::m({id}) {{ return {value}; }}");
        let expected = format!(
            "fn f() -> bool {{ {} {} g() }} fn h() {{ {} g() }} fn i() {{}} fn j() -> bool {{ {} true }}",
            m(0, "true"),
            m(1, "false"),
            m(2, ""),
            m(3, "false")
        );
        assert_eq!(text, expected);
    }
}
