//! How large SQLite makes a statement before its first step, as an upper bound: it puts views and `WITH` clauses in place of their
//! names, expressions in place of the columns that stand for them, and conditions into each part that they are about. Each of these can
//! double at each of some levels, takes memory and time, and is counted by none of SQLite's own bounds.
//!
//! The bound follows from the statement's text and the database's schema alone, so all replicas refuse the same. It reads words and
//! brackets, and knows no more of the language than where a `select` begins, its columns end, and its sources stand: what it is not sure
//! of it takes for the worse.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::limits::{COLUMNS_MAX, NESTED_MAX, WEIGHT_MAX, WEIGHT_OF_SELECT};

mod words;

use words::{Node, is_source, is_unit, read, small};

/// How a conflict may end, where that is said.
const WAYS: &[&str] = &["abort", "fail", "ignore", "replace", "rollback"];

/// What a table, view or part of a statement comes to when it is put in place of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Weight {
    /// Of all of it, in nodes of SQLite's tree.
    size: u64,
    /// Of its columns.
    columns: Columns,
    /// How many columns it has.
    width: u64,
    /// How many `select` are in it, one in the FROM of the other or beside it.
    selects: u64,
    /// How many it is the union of.
    arms: u64,
}

/// What the columns of something come to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Columns {
    /// The largest.
    most: u64,
    /// By name; what is not there is none of them. None: their names are not known, and each may come to the most.
    by_name: Option<Arc<BTreeMap<Box<str>, u64>>>,
}

impl Columns {
    /// Those of a table.
    fn plain() -> Self {
        Self { most: 1, by_name: Some(Arc::default()) }
    }

    fn any(most: u64) -> Self {
        Self { most, by_name: None }
    }

    fn of(&self, name: &str) -> u64 {
        match &self.by_name {
            // Of two that have one name SQLite calls the second so.
            Some(by_name) if !name.contains(':') => by_name.get(name).copied().unwrap_or(1),
            _ => self.most,
        }
    }

    /// All of them together. Of many their names do not matter.
    fn and<'c>(self, others: impl Iterator<Item = &'c Self>) -> Self {
        let Self { mut most, mut by_name } = self;
        for (nth, other) in others.enumerate() {
            most = most.max(other.most);
            by_name = match (by_name, &other.by_name) {
                (Some(mut ours), Some(theirs)) if nth < NESTED_MAX => {
                    if !theirs.is_empty() {
                        let ours = Arc::make_mut(&mut ours);
                        for (name, size) in &**theirs {
                            let known = ours.entry(name.clone()).or_insert(1);
                            *known = (*known).max(*size);
                        }
                    }
                    Some(ours)
                }
                _ => None,
            };
        }
        Self { most, by_name }
    }
}

impl Weight {
    fn leaf() -> Self {
        Self { size: 0, columns: Columns::plain(), width: 1, selects: 0, arms: 1 }
    }

    fn endless() -> Self {
        let columns = Columns::any(u64::MAX);
        Self { size: u64::MAX, columns, width: COLUMNS_MAX as u64, selects: u64::MAX, arms: u64::MAX }
    }

    fn larger(self, other: Self) -> Self {
        Self {
            size: self.size.max(other.size),
            columns: self.columns.and([&other.columns].into_iter()),
            width: self.width.max(other.width),
            selects: self.selects.max(other.selects),
            arms: self.arms.max(other.arms),
        }
    }
}

/// One row of `sqlite_schema`.
#[derive(Debug)]
pub struct Row {
    pub kind: String,
    pub name: String,
    pub table: String,
    pub sql: String,
}

/// What is done when rows of a table or view change.
#[derive(Debug)]
struct Trigger {
    size: u64,
    names: BTreeSet<Box<str>>,
}

/// The weights of all that a schema has.
#[derive(Debug, Default)]
pub struct Catalogue {
    weights: BTreeMap<Box<str>, Weight>,
    /// By the table or view that they are of.
    triggers: BTreeMap<Box<str>, Vec<Trigger>>,
    /// Tables that refer to a table.
    children: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// Names of columns, of each table.
    columns: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// How conflicts may end, in some trigger.
    ways: BTreeSet<&'static str>,
    /// Of all together.
    all: u64,
    /// Of all texts.
    bytes: usize,
}

impl Catalogue {
    pub fn new(rows: &[Row]) -> Self {
        let mut catalogue = Self { bytes: rows.iter().map(|row| row.sql.len()).sum(), ..Self::default() };
        let of = |kind: &'static str| rows.iter().filter(move |row| row.kind == kind);
        for row in of("table") {
            let indexes = of("index").filter(|index| index.table.eq_ignore_ascii_case(&row.name));
            catalogue.add_table(row, indexes);
        }
        let read: Vec<(Box<str>, Option<Vec<Node>>)> =
            of("view").map(|row| (small(&row.name), read(&row.sql))).collect();
        let views = read.iter().map(|(name, nodes)| (&**name, nodes.as_deref())).collect();
        let mut weigher = Weigher::new(&catalogue.weights, views);
        for (name, _) in &read {
            weigher.name(name);
        }
        let done = std::mem::take(&mut weigher.done);
        catalogue.weights.extend(done.into_iter().map(|(name, weight)| (name.into(), weight)));
        for row in of("trigger") {
            let text = row.sql.to_ascii_lowercase();
            catalogue.ways.extend(WAYS.iter().filter(|way| text.contains(**way)));
            let Some(nodes) = read_or_endless(&row.sql) else { continue };
            let mut weigher = Weigher::new(&catalogue.weights, BTreeMap::new());
            let size = nodes.as_ref().map_or(u64::MAX, |nodes| weigher.unit(nodes).size);
            let trigger = Trigger { size, names: weigher.names };
            catalogue.triggers.entry(small(&row.table)).or_default().push(trigger);
        }
        let triggers = catalogue.triggers.values().flatten().map(|trigger| trigger.size);
        catalogue.all = sum(catalogue.weights.values().map(|weight| weight.size).chain(triggers));
        catalogue
    }

    fn add_table<'r>(&mut self, row: &Row, indexes: impl Iterator<Item = &'r Row>) {
        let name = small(&row.name);
        let Some(nodes) = read(&row.sql) else {
            self.weights.insert(name, Weight::endless());
            return;
        };
        let body = nodes.iter().find_map(Node::group).unwrap_or_default();
        let columns: Vec<&[Node]> = body.split(|node| node.is_mark(b',')).collect();
        let named = |column: &&[Node]| column.first().and_then(Node::name).map(Box::from);
        self.columns.insert(name.clone(), columns.iter().filter_map(named).collect());
        let mut made = Made::default();
        for column in &columns {
            let is_as = |pair: &&[Node]| pair[0].is_word("as") && pair[1].group().is_some();
            let how = column.windows(2).find(is_as).and_then(|pair| pair[1].group());
            if let (Some(name), Some(how)) = (column.first().and_then(Node::name), how) {
                made.how.insert(name, how);
            }
        }
        let mut size = made.sum(&nodes, 0);
        let most = made.done.values().copied().fold(1, u64::max);
        for index in indexes {
            let index = read(&index.sql);
            size = size.saturating_add(index.map_or(u64::MAX, |nodes| made.of(&nodes)));
        }
        let parents = nodes.windows(2).chain(columns.iter().flat_map(|column| column.windows(2)));
        for pair in parents.filter(|pair| pair[0].is_word("references")) {
            let parent = pair[1].name().unwrap_or_default();
            self.children.entry(parent.into()).or_default().push(name.clone());
        }
        let width = columns.len().min(COLUMNS_MAX) as u64;
        let columns = if most == 1 { Columns::plain() } else { Columns::any(most) };
        self.weights.insert(name, Weight { size, columns, width, selects: 0, arms: 1 });
    }

    /// How many bytes its texts have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The heaviest thing that is heavier than a statement may be, and was not so before.
    pub fn heavier_than(&self, before: &Self) -> Option<&str> {
        let is_new = |name: &str, size: u64| {
            size > WEIGHT_MAX && before.weights.get(name).is_none_or(|before| before.size < size)
        };
        self.weights.iter().find(|(name, weight)| is_new(name, weight.size)).map(|(name, _)| &**name)
    }

    /// Names of the columns of each table.
    pub fn tables(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.columns.values().map(Vec::as_slice)
    }

    /// Of a statement.
    pub fn weigh(&self, sql: &str) -> u64 {
        let Some(nodes) = read(sql) else { return u64::MAX };
        let mut words = nodes.iter().filter_map(Node::word);
        match (words.next(), words.next()) {
            // What is too heavy can be taken away.
            (Some("drop"), Some("view" | "trigger" | "index")) => return nodes.len() as u64,
            // It looks through all views and triggers, for the name that changes.
            (Some("alter"), _) => {
                let mut weigher = Weigher::new(&self.weights, BTreeMap::new());
                let mut named = Vec::new();
                weigher.named(&nodes, &mut named);
                // A column that is added may be made of others.
                weigher.scopes.push(Columns::any(named.iter().map(|weight| weight.columns.most).fold(1, u64::max)));
                return weigher.expression(&nodes, false).saturating_add(self.all / 4);
            }
            (Some("create"), Some("table")) => {
                let row = Row { kind: String::new(), name: String::new(), table: String::new(), sql: sql.to_owned() };
                let mut made = Self::default();
                made.add_table(&row, std::iter::empty());
                let made = made.weights.values().map(|weight| weight.size).fold(0, u64::max);
                return made.max(Weigher::new(&self.weights, BTreeMap::new()).unit(&nodes).size);
            }
            _ => (),
        }
        let mut weigher = Weigher::new(&self.weights, BTreeMap::new());
        let size = weigher.unit(&nodes).size;
        match weigher.writes {
            true => size.saturating_add(self.follow(weigher.names, sql)),
            false => size,
        }
    }

    /// Of what happens when rows of these are changed: triggers, theirs, and what refers to them.
    fn follow(&self, names: BTreeSet<Box<str>>, sql: &str) -> u64 {
        // Each trigger is understood once for each way in which a conflict may end.
        let ways = WAYS.iter().filter(|way| self.ways.contains(*way) || sql.to_ascii_lowercase().contains(*way)).count()
            as u64;
        let ways = ways + 1;
        let (mut size, mut left): (u64, Vec<Box<str>>) = (0, names.iter().cloned().collect());
        let mut seen = names;
        while let Some(name) = left.pop() {
            for trigger in self.triggers.get(&name).into_iter().flatten() {
                size = size.saturating_add(trigger.size.saturating_mul(ways));
                left.extend(trigger.names.iter().filter(|name| seen.insert((*name).clone())).cloned());
            }
            for child in self.children.get(&name).into_iter().flatten() {
                size = size.saturating_add(self.weights.get(child).map_or(0, |weight| weight.size));
                left.extend(seen.insert(child.clone()).then(|| child.clone()));
            }
        }
        size
    }
}

/// Columns of a table that are made of others.
#[derive(Default)]
struct Made<'n> {
    how: BTreeMap<&'n str, &'n [Node]>,
    /// None of them while it is looked at, as those that go round in circles are refused by SQLite.
    done: BTreeMap<&'n str, u64>,
}

impl<'n> Made<'n> {
    /// Of an expression, with what its columns are made of.
    fn sum(&mut self, nodes: &'n [Node], nested: usize) -> u64 {
        if nested > NESTED_MAX {
            return u64::MAX;
        }
        let mut size: u64 = 0;
        for node in nodes {
            size = size.saturating_add(match (node, node.name()) {
                (Node::Group(nodes), _) => self.sum(nodes, nested + 1),
                (_, Some(name)) => self.column(name, nested),
                _ => 1,
            });
        }
        size
    }

    fn column(&mut self, name: &'n str, nested: usize) -> u64 {
        let Some(how) = self.how.get(name).copied() else { return 1 };
        if let Some(done) = self.done.get(name) {
            return *done;
        }
        self.done.insert(name, 1);
        let size = self.sum(how, nested + 1);
        self.done.insert(name, size);
        size
    }

    /// Of an expression somewhere else.
    fn of(&self, nodes: &[Node]) -> u64 {
        sum(nodes.iter().map(|node| match (node, node.name()) {
            (Node::Group(nodes), _) => self.of(nodes),
            (_, Some(name)) => self.done.get(name).copied().unwrap_or(1),
            _ => 1,
        }))
    }
}

/// One `WITH name AS (...)`.
struct Clause<'n> {
    name: &'n str,
    body: &'n [Node],
    /// How many there are with those that were written with it.
    end: usize,
    /// Its columns were given other names.
    is_renamed: bool,
    /// None: it was not looked at, or is being looked at.
    weight: Option<Weight>,
    is_busy: bool,
}

/// Weighs one statement, or all views of a schema.
struct Weigher<'n, 'c> {
    known: &'c BTreeMap<Box<str>, Weight>,
    /// Those that are not known yet. None of one that is nested too deep.
    views: BTreeMap<&'n str, Option<&'n [Node]>>,
    done: BTreeMap<&'n str, Weight>,
    clauses: Vec<Clause<'n>>,
    /// What columns come to, of all that is read around here.
    scopes: Vec<Columns>,
    /// What of the schema is named.
    names: BTreeSet<Box<str>>,
    writes: bool,
    nested: usize,
}

impl<'n, 'c> Weigher<'n, 'c> {
    fn new(known: &'c BTreeMap<Box<str>, Weight>, views: BTreeMap<&'n str, Option<&'n [Node]>>) -> Self {
        let (done, clauses, names) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        Self { known, views, done, clauses, scopes: Vec::new(), names, writes: false, nested: 0 }
    }

    /// What stands for a name; none if there is nothing of that name.
    fn name(&mut self, name: &str) -> Option<Weight> {
        let mut found = self.known.get(name).cloned();
        if let Some((name, nodes)) = self.views.get_key_value(name).map(|(name, nodes)| (*name, *nodes)) {
            let weight = match self.done.get(name) {
                Some(done) => done.clone(),
                None => {
                    // One that names itself is refused by SQLite.
                    self.done.insert(name, Weight::leaf());
                    // A view sees no clause of who names it.
                    let (clauses, scopes) = (std::mem::take(&mut self.clauses), std::mem::take(&mut self.scopes));
                    let mut weight = nodes.map_or_else(Weight::endless, |nodes| self.unit(nodes));
                    (self.clauses, self.scopes) = (clauses, scopes);
                    // `create view name (other, names) as`.
                    let mut head = nodes.unwrap_or_default().iter().take_while(|node| !node.is_word("as"));
                    if head.any(|node| node.group().is_some()) {
                        weight.columns.by_name = None;
                    }
                    self.done.insert(name, weight.clone());
                    weight
                }
            };
            found = Some(match found {
                None => weight,
                Some(found) => found.larger(weight),
            });
        }
        if found.is_some() {
            self.names.insert(name.into());
        }
        // The innermost that has the name.
        if let Some(at) = self.clauses.iter().rposition(|clause| clause.name == name) {
            let weight = self.clause(at);
            found = Some(match found {
                None => weight,
                Some(found) => found.larger(weight),
            });
        }
        found
    }

    fn clause(&mut self, at: usize) -> Weight {
        let clause = &mut self.clauses[at];
        match (&clause.weight, clause.is_busy) {
            (Some(weight), _) => weight.clone(),
            // It is recursive: what it gives it is given.
            (None, true) => Weight::leaf(),
            (None, false) => {
                clause.is_busy = true;
                let (body, is_renamed) = (clause.body, clause.is_renamed);
                // It sees those that were written with it and around it, and none of where it is named.
                let inner = self.clauses.split_off(self.clauses[at].end);
                let mut weight = self.unit(body);
                self.clauses.extend(inner);
                if is_renamed {
                    weight.columns.by_name = None;
                }
                self.clauses[at].weight = Some(weight.clone());
                weight
            }
        }
    }

    /// Of one statement, or what stands in brackets and begins as one.
    fn unit(&mut self, nodes: &'n [Node]) -> Weight {
        if self.nested >= NESTED_MAX {
            return Weight::endless();
        }
        self.nested += 1;
        let outer = self.clauses.len();
        self.find_clauses(nodes);
        let end = self.clauses.len();
        self.clauses[outer..].iter_mut().for_each(|clause| clause.end = end);
        for at in outer..end {
            self.clause(at);
        }
        let parts = nodes.split(|node| {
            node.is_mark(b';') || node.word().is_some_and(|word| ["union", "intersect", "except"].contains(&word))
        });
        let mut all: Option<Weight> = None;
        for part in parts {
            let weight = self.arm(part);
            all = Some(match all {
                None => weight,
                Some(all) => Weight {
                    size: all.size.saturating_add(weight.size),
                    selects: all.selects.saturating_add(weight.selects),
                    arms: all.arms.saturating_add(weight.arms),
                    // They have the names of the first, and may come to what those of another do.
                    columns: Columns::any(all.columns.most.max(weight.columns.most)),
                    width: all.width.max(weight.width),
                },
            });
        }
        let all = all.unwrap_or_else(Weight::leaf);
        self.clauses.truncate(outer);
        self.nested -= 1;
        all
    }

    fn find_clauses(&mut self, nodes: &'n [Node]) {
        for (at, node) in nodes.iter().enumerate() {
            let Node::Group(body) = node else { continue };
            let mut before = nodes[..at].iter().rev().peekable();
            before.next_if(|node| node.is_word("materialized"));
            before.next_if(|node| node.is_word("not"));
            if before.next_if(|node| node.is_word("as")).is_none() {
                continue;
            }
            let is_renamed = before.next_if(|node| node.group().is_some()).is_some();
            if let Some(name) = before.next().and_then(Node::name) {
                self.clauses.push(Clause { name, body, end: 0, is_renamed, weight: None, is_busy: false });
            }
        }
    }

    /// Of one `select` without those that it is united with, or of another statement.
    fn arm(&mut self, nodes: &'n [Node]) -> Weight {
        let ends = ["from", "where", "group", "having", "order", "limit", "returning"];
        let is_one_of = |ends: &[&str], node: &Node| node.word().is_some_and(|word| ends.contains(&word));
        let (head, items, from, tail) = match nodes.iter().position(|node| node.is_word("select")) {
            Some(at) => {
                let (head, rest) = nodes.split_at(at + 1);
                let end = rest.iter().position(|node| is_one_of(&ends, node));
                let (items, rest) = rest.split_at(end.unwrap_or(rest.len()));
                let end = rest.iter().position(|node| is_one_of(&ends[1..], node));
                let (from, tail) = rest.split_at(end.unwrap_or(rest.len()));
                (head, items, from, tail)
            }
            // It has no columns, and may read anywhere.
            None => (&nodes[..0], &nodes[..0], nodes, &nodes[..0]),
        };

        // What it reads: what stands in FROM, and for the worse whatever else has the name of something.
        let mut sources = Vec::new();
        self.named(nodes, &mut sources);
        self.sources(from, &mut sources);
        let columns = Columns::plain().and(sources.iter().map(|source| &source.columns));
        let wide = sum(sources.iter().map(|source| source.width));
        self.scopes.push(columns.clone());

        let (mut size, mut width, mut most) = (WEIGHT_OF_SELECT, 0_u64, 1);
        // By what they are called; not, if one has a name that SQLite makes of its text.
        let mut by_name = Some(BTreeMap::new());
        for item in items.split(|node| node.is_mark(b',')) {
            let before = item.len().checked_sub(2).map(|at| &item[at]);
            let is_star = item.last().is_some_and(|node| node.is_mark(b'*'))
                && before.is_none_or(|node| node.is_mark(b'.') || is_one_of(&["all", "distinct"], node));
            let (weight, many) = match is_star {
                true => (columns.most, wide),
                false => (self.expression(item, false), 1),
            };
            size = size.saturating_add(weight.saturating_mul(many));
            width = width.saturating_add(many);
            most = most.max(weight);
            let is_named = before.is_none_or(|node| node.is_mark(b'.') || node.is_word("as"));
            let given: Option<Vec<(Box<str>, u64)>> = match (is_star, &columns.by_name) {
                (true, by_name) => {
                    by_name.as_ref().map(|all| all.iter().map(|(name, of)| (name.clone(), *of)).collect())
                }
                (false, _) => {
                    let name = item.last().and_then(Node::name).filter(|_| is_named);
                    name.map(|name| vec![(Box::from(name), weight)])
                }
            };
            by_name = by_name.zip(given).map(|(mut by_name, given)| {
                for (name, weight) in given {
                    let known = by_name.entry(name).or_insert(1);
                    *known = weight.max(*known);
                }
                by_name
            });
        }
        // Behind its columns they may be called by the names that it gives them.
        let given = Columns { most, by_name: by_name.map(Arc::new) };
        self.scopes.push(if items.is_empty() { Columns::plain() } else { given.clone() });
        size = size.saturating_add(self.expression(head, false));
        let joined = from.iter().filter(|node| node.is_word("natural") || node.is_word("using")).count() as u64;
        let asked = [self.expression(from, true), self.expression(tail, false), joined.saturating_mul(wide)];
        let asked = sum(asked.into_iter());
        self.scopes.truncate(self.scopes.len() - 2);

        // It is done for each arm of what it reads; and what it asks for is put into each part of that.
        let inner = sum(sources.iter().map(|source| source.selects));
        let united = sources.iter().filter(|source| source.arms > 1).count();
        let arms = sources.iter().map(|source| source.arms).fold(1, u64::saturating_mul);
        // SQLite unites no more when there are so many.
        let arms = if united > 1 { arms.min(500 + sources.iter().map(|s| s.arms).fold(1, u64::max)) } else { arms };
        let size = size.saturating_add(asked).saturating_mul(arms).saturating_add(asked.saturating_mul(inner));
        let read = sum(sources.iter().map(|source| source.size.saturating_add(WEIGHT_OF_SELECT)));
        let is_joined = sources.iter().filter(|source| source.selects > 0).count() > 1;
        let read = if is_joined { read.saturating_mul(arms) } else { read };
        Weight {
            size: size.saturating_add(read),
            columns: given,
            width: width.min(COLUMNS_MAX as u64),
            selects: inner.saturating_add(1),
            arms,
        }
    }

    /// All that is named, and not the column of something.
    fn named(&mut self, nodes: &'n [Node], found: &mut Vec<Weight>) {
        for (at, node) in nodes.iter().enumerate() {
            match (node, node.name()) {
                (Node::Group(nodes), _) if !is_unit(nodes) => self.nest(|weigher| weigher.named(nodes, found)),
                (_, Some(name)) => {
                    self.writes |= name == "replace";
                    let is_of = at > 1 && nodes[at - 1].is_mark(b'.') && nodes[at - 2].name() != Some("main");
                    let has = nodes.get(at + 1).is_some_and(|node| node.is_mark(b'.')) && name != "main";
                    let is_said = nodes.get(at + 1).is_some_and(|node| node.is_word("as"))
                        && nodes.get(at + 2).and_then(Node::group).is_some_and(is_unit);
                    if !is_of && !has && !is_said {
                        found.extend(self.name(name));
                    }
                }
                _ => {
                    let writes = ["insert", "update", "delete", "drop"];
                    self.writes |= node.word().is_some_and(|word| writes.contains(&word));
                }
            }
        }
    }

    /// What stands in brackets where a table could.
    fn sources(&mut self, nodes: &'n [Node], found: &mut Vec<Weight>) {
        for (at, node) in nodes.iter().enumerate() {
            match node {
                Node::Group(inner) if !is_source(nodes, at) || inner.is_empty() => (),
                Node::Group(inner) if is_unit(inner) => found.push(self.unit(inner)),
                Node::Group(inner) => self.nest(|weigher| weigher.sources(inner, found)),
                _ => (),
            }
        }
    }

    /// Of words, with what columns come to, without what is a source.
    fn expression(&mut self, nodes: &'n [Node], is_from: bool) -> u64 {
        let mut size: u64 = 0;
        for (at, node) in nodes.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &nodes[at]);
            let weight = match node {
                Node::Group(inner) => {
                    let stands_there = is_from && is_source(nodes, at);
                    match (is_unit(inner), stands_there) {
                        // It was weighed where sources or clauses are.
                        (true, true) => 1,
                        (true, false)
                            if before.is_some_and(|node| node.is_word("as") || node.is_word("materialized")) =>
                        {
                            1
                        }
                        (true, false) => {
                            let weight = self.unit(inner);
                            weight.size
                        }
                        (false, stands_there) => {
                            let mut size = u64::MAX;
                            self.nest(|weigher| {
                                size = weigher.expression(inner, stands_there);
                            });
                            size
                        }
                    }
                }
                _ if let Some(name) = node.name() => {
                    // The name of a function, or of what has the column, or one that is given.
                    let is_plain = before.is_some_and(|node| node.is_word("as"))
                        || nodes.get(at + 1).is_some_and(|node| node.group().is_some() || node.is_mark(b'.'));
                    match is_plain {
                        true => 1,
                        false => self.scopes.iter().map(|columns| columns.of(name)).fold(1, u64::max),
                    }
                }
                // All columns of a table whose rows are given back.
                Node::Mark(b'*')
                    if before
                        .is_some_and(|node| node.is_mark(b',') || node.is_mark(b'.') || node.is_word("returning")) =>
                {
                    COLUMNS_MAX as u64
                }
                _ => 1,
            };
            size = size.saturating_add(weight);
        }
        size
    }

    /// One bracket deeper; not, where that is too deep.
    fn nest(&mut self, act: impl FnOnce(&mut Self)) {
        if self.nested < NESTED_MAX {
            self.nested += 1;
            act(self);
            self.nested -= 1;
        }
    }
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The text of a trigger, or none of it, where it is nested too deep; none, where there is none.
fn read_or_endless(sql: &str) -> Option<Option<Vec<Node>>> {
    (!sql.is_empty()).then(|| read(sql))
}

/// Whether some of these names were drawn by SQLite: the sixth column of one name gets a number by its own chance.
pub fn has_drawn<'n>(names: impl Iterator<Item = &'n str> + Clone) -> bool {
    let of = |name: &'n str| name.rsplit_once(':').and_then(|(of, number)| Some((of, number.parse::<u64>().ok()?)));
    let fourth: BTreeSet<&str> =
        names.clone().filter_map(of).filter(|(_, number)| *number == 4).map(|(of, _)| of).collect();
    !fourth.is_empty() && names.filter_map(of).any(|(of, number)| number > 4 && fourth.contains(of))
}
