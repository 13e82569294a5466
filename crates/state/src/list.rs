//! From the list of classes: the closed enums of what belongs to any class, and [`Classes`], the machines of one node. The compiler
//! finds every place where a new class matters; no trait object stands on the way of an operation.

use base::{Now, Outcome};
use class::Input;

use crate::Answer;
use crate::events::{Output, Recovering};

/// Makes the enums `Class`, `NamespaceSpec`, `Op` and `Answer`, and the structs `Settings` and `Classes`, of lines `field Variant: type`.
macro_rules! classes {
    // The first token is a dollar: the macro that is made here has parameters of its own.
    ($d:tt $($field:ident $Variant:ident: $class:ty),* $(,)?) => {
        /// The promise of a namespace.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Class {
            $($Variant),*
        }

        const _: () = assert!(
            class::Number::are_unique(&[$(<$class as class::Class>::NUMBER),*]),
            "two classes have the same number"
        );

        impl Class {
            pub const ALL: &'static [Class] = &[$(Class::$Variant),*];

            /// As declarations write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Class::$Variant => <$class as class::Class>::NAME),*
                }
            }

            pub const fn number(self) -> class::Number {
                match self {
                    $(Class::$Variant => <$class as class::Class>::NUMBER),*
                }
            }

            /// The level of programs from which a namespace may be of this class.
            pub const fn since(self) -> u32 {
                match self {
                    $(Class::$Variant => <$class as class::Class>::SINCE),*
                }
            }

            /// Kind of its records in the root group.
            pub const fn records(self) -> &'static str {
                match self {
                    $(Class::$Variant => <$class as class::Class>::RECORDS),*
                }
            }

            /// How often it is asked for a plan if nothing happens; none if it plans nothing.
            pub const fn plans_every(self) -> Option<Span> {
                match self {
                    $(Class::$Variant => <$class as class::Class>::PLANS_EVERY),*
                }
            }

            /// Its keys of a declaration.
            pub const fn keys(self) -> &'static [class::Key] {
                match self {
                    $(Class::$Variant => <<$class as class::Class>::Spec as class::Spec>::KEYS),*
                }
            }

            /// What to write in place of a key that only another class has, if it has words for that.
            pub fn foreign(self, key: &str) -> Option<&'static str> {
                match self {
                    $(Class::$Variant => <<$class as class::Class>::Spec as class::Spec>::foreign(key)),*
                }
            }

            /// Whether its values outlive a stop of all nodes.
            pub const fn is_on_disk(self) -> bool {
                match self {
                    $(Class::$Variant => <$class as class::Class>::ON_DISK),*
                }
            }

            /// What a dump of a namespace shows, in a sentence.
            pub const fn dumped(self) -> &'static str {
                match self {
                    $(Class::$Variant => <$class as class::Class>::DUMPED),*
                }
            }

            /// Whether its namespaces lie in consensus groups.
            pub const fn is_in_groups(self) -> bool {
                match self {
                    $(Class::$Variant => <$class as class::Class>::IN_GROUPS),*
                }
            }

            /// Why its namespaces are not written to files, if they are not.
            pub const fn not_dumped(self) -> Option<&'static str> {
                match self {
                    $(Class::$Variant => <$class as class::Class>::NOT_DUMPED),*
                }
            }

            /// Begins to read a namespace out.
            pub fn dump(self, space: Arc<str>, shards: Vec<(u64, u64)>, id: u64) -> Dump {
                match self {
                    $(Class::$Variant => Dump::$Variant(<$class as class::Class>::dump(space, shards, id))),*
                }
            }

            /// The operation that puts a part or an item of a dump back; none if there is nothing to do.
            ///
            /// # Errors
            /// Why the class cannot hold it.
            pub fn load(self, space: &Arc<str>, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
                match self {
                    $(Class::$Variant => Ok(<$class as class::Class>::load(space, record, wall_ms)?.map(Op::$Variant))),*
                }
            }

            /// Its figures, in order of their names.
            pub const fn figures(self) -> &'static [class::Figure] {
                match self {
                    $(Class::$Variant => <$class as class::Class>::FIGURES),*
                }
            }
        }

        /// What is declared of one namespace: its class, and the keys of that class.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum NamespaceSpec {
            $($Variant(<$class as class::Class>::Spec)),*
        }

        impl NamespaceSpec {
            pub fn class(&self) -> Class {
                match self {
                    $(NamespaceSpec::$Variant(_) => Class::$Variant),*
                }
            }

            $(
                /// What is declared, if it is of this class.
                pub fn $field(&self) -> Option<&<$class as class::Class>::Spec> {
                    match self {
                        NamespaceSpec::$Variant(spec) => Some(spec),
                        #[allow(unreachable_patterns, reason = "while there is one class")]
                        _ => None,
                    }
                }
            )*

            fn read_as(class: Class, keys: &serde_json::Map<String, serde_json::Value>) -> Result<Self, class::Wrong> {
                match class {
                    $(Class::$Variant => class::Spec::read(keys).map(NamespaceSpec::$Variant)),*
                }
            }

            fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::write(spec)),*
                }
            }

            /// What it may take of its nodes.
            pub fn quota(&self) -> &class::Quota {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::quota(spec)),*
                }
            }

            /// Consensus groups that it wants to lie in, if it lies in any.
            pub fn groups(&self) -> Option<class::Groups> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::groups(spec)),*
                }
            }

            /// What else its Redis clients may open, if its class has Redis commands.
            pub fn databases(&self) -> Option<&class::Databases> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::databases(spec)),*
                }
            }

            /// Bytes that it may hold in all, copies not counted, if it is bounded.
            pub fn bytes_max(&self) -> Option<u64> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::bytes_max(spec)),*
                }
            }

            /// What the class promises, in a sentence for people.
            pub fn promise(&self) -> &'static str {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::promise(spec)),*
                }
            }

            /// What people are shown of it behind its name and class.
            pub fn lines(&self) -> Vec<class::Line> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::lines(spec)),*
                }
            }

            /// Checks what the form of a value cannot.
            ///
            /// # Errors
            /// The key that is wrong, and why.
            pub fn validate(&self) -> Result<(), class::Wrong> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::validate(spec)),*
                }
            }

            /// Whether a namespace that was declared as `before`, and has so many shards now, may be declared as this.
            ///
            /// A key with a value that only newer programs know, and from which level on.
            pub fn newer_key(&self) -> Option<(&'static str, u32)> {
                match self {
                    $(NamespaceSpec::$Variant(spec) => class::Spec::newer_key(spec)),*
                }
            }

            /// # Errors
            /// The key that is wrong, and why.
            pub fn may_follow(&self, before: &Self, shards: u32) -> Result<(), class::Wrong> {
                match (self, before) {
                    $((NamespaceSpec::$Variant(spec), NamespaceSpec::$Variant(before)) => {
                        class::Spec::may_follow(spec, before, shards)
                    })*
                    #[allow(unreachable_patterns, reason = "while there is one class")]
                    _ => {
                        let (was, is) = (before.class(), self.class());
                        Err(("class".into(), format!("it is {was}, and cannot become {is}; choose another name")))
                    }
                }
            }
        }

        /// An operation of any class, from a front door.
        #[derive(Clone, Debug)]
        pub enum Op {
            $($Variant(<$class as class::Class>::Op)),*
        }

        /// What became of an operation of any class.
        #[derive(Clone, Debug)]
        pub enum Answer {
            $($Variant(Outcome<<$class as class::Class>::Reply>)),*
        }

        impl Op {
            /// The namespace that it is about, and for how many operations it counts.
            pub fn counts(&self) -> (&str, u64) {
                match self {
                    $(Op::$Variant(op) => <$class as class::Class>::counts(op)),*
                }
            }

            /// What whoever asked for it hears if it is refused.
            pub fn refused(&self, refused: base::Refused) -> Answer {
                match self {
                    $(Op::$Variant(_) => Answer::$Variant(Outcome::Refused(refused))),*
                }
            }
        }

        /// Operations of each class.
        pub mod ops {
            $(pub type $Variant = <$class as class::Class>::Op;)*
        }

        /// What each class answers.
        pub mod replies {
            $(pub type $Variant = <$class as class::Class>::Reply;)*
        }

        /// Has another macro do something with the names of all classes: `Session, Linear, ...`.
        #[macro_export]
        macro_rules! each_class {
            ($d then:ident) => {
                $d then! { $($Variant),* }
            };
        }

        impl Answer {
            /// Why it was not done, or may not have been, and when to ask again, if that is worth it.
            pub fn undone(&self) -> Option<(String, Option<base::Span>)> {
                match self {
                    $(Answer::$Variant(outcome) => undone(outcome)),*
                }
            }

            /// Whether an operation of [`Class::load`] did what it should.
            ///
            /// # Errors
            /// Why not.
            pub fn loaded(&self) -> Result<(), String> {
                match self {
                    $(Answer::$Variant(Outcome::Done(reply)) => <$class as class::Class>::loaded(reply),)*
                    _ => Err("it was not done".into()),
                }
            }
        }

        /// A namespace of any class that is being read out.
        #[derive(Debug)]
        pub enum Dump {
            $($Variant(<$class as class::Class>::Dump)),*
        }

        impl Dump {
            /// What is to be asked next, all at once. Nothing: all was told.
            pub fn asks(&mut self) -> Vec<Op> {
                match self {
                    $(Dump::$Variant(dump) => class::Dump::asks(dump).into_iter().map(Op::$Variant).collect()),*
                }
            }

            /// What was answered, in the same order.
            ///
            /// # Errors
            /// Why the dump cannot go on.
            pub fn take(&mut self, answers: Vec<Answer>, wall_ms: u64) -> Result<Vec<Record>, String> {
                match self {
                    $(Dump::$Variant(dump) => {
                        let done = |answer| match answer {
                            Answer::$Variant(Outcome::Done(reply)) => Some(reply),
                            _ => None,
                        };
                        let replies = answers.into_iter().map(done).collect::<Option<Vec<_>>>();
                        class::Dump::take(dump, replies.ok_or("not all of it was answered")?, wall_ms)
                    })*
                }
            }
        }

        /// What whoever starts a node tells each class.
        #[derive(Clone, Debug, Default)]
        pub struct Settings {
            $(pub $field: <$class as class::Class>::Settings),*
        }

        impl Settings {
            /// All options by which whoever starts a node tells a class something, each with its sentence.
            pub fn flags() -> impl Iterator<Item = (&'static str, &'static str)> {
                let flags = std::iter::empty();
                $(let flags = flags.chain(<$class as class::Class>::FLAGS.iter().map(|flag| (flag.name, flag.help)));)*
                flags
            }

            /// Does what the option of this name means. False: there is none.
            pub fn flag(&mut self, name: &str) -> bool {
                $(
                    if let Some(flag) = <$class as class::Class>::FLAGS.iter().find(|flag| flag.name == name) {
                        (flag.set)(&mut self.$field);
                        return true;
                    }
                )*
                false
            }
        }

        /// What the classes of a node tell the others: one object with the fields of all.
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Reports {
            $(
                #[serde(flatten)]
                pub $field: <$class as class::Class>::Report
            ),*
        }

        impl Reports {
            /// What of them is worth telling all nodes at once.
            pub fn standing(&self) -> Self {
                Self { $($field: <$class as class::Class>::standing(&self.$field)),* }
            }
        }

        /// The machines of all classes on one node.
        pub struct Classes {
            $(pub $field: $class,)*
            buffers: Buffers,
            recovering: Recovering,
        }

        /// Kept from call to call, so that no call allocates a vector.
        #[derive(Default)]
        struct Buffers {
            $($field: Vec<class::Output<Outcome<<$class as class::Class>::Reply>>>),*
        }

        impl Classes {
            pub fn new(birth: &mut class::Birth, settings: Settings) -> Self {
                Self {
                    $($field: <$class as class::Class>::born(birth, settings.$field),)*
                    buffers: Buffers::default(),
                    recovering: Recovering::default(),
                }
            }

            /// Comes first: what the disk has kept of all groups but the root group, each for the class that its id belongs to.
            /// True: no class has lost anything by a reboot. Else [`class::Output::Recovered`] comes once, when all have it again.
            pub fn start(&mut self, mut kept: BTreeMap<GroupId, Vec<Bytes>>, rebooted: bool) -> bool {
                $({
                    let its = |id: &GroupId| class::Number::of_group(*id) == Some(<$class as class::Class>::NUMBER);
                    let all = std::mem::take(&mut kept);
                    let (mine, rest) = all.into_iter().partition(|(id, _)| its(id));
                    kept = rest;
                    if class::Class::start(&mut self.$field, mine, rebooted) {
                        self.recovering.begins(<$class as class::Class>::NUMBER);
                    }
                })*
                drop(kept);
                self.recovering.is_over()
            }

            $(
                /// Has one class take an input.
                pub fn $field(&mut self, now: Now, input: class::Input<$class>, out: &mut Vec<Output>) {
                    let (wants, recovering) = (&mut self.buffers.$field, &mut self.recovering);
                    run(&mut self.$field, wants, recovering, Answer::$Variant, now, input, out);
                }
            )*

            pub fn ask(&mut self, now: Now, id: AskId, budget: Span, op: Op, out: &mut Vec<Output>) {
                match op {
                    $(Op::$Variant(op) => self.$field(now, class::Input::Ask { id, budget, op }, out)),*
                }
            }

            /// False if no class of this program has such frames.
            pub fn frame(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Vec<Output>) -> bool {
                let number = class::Number::of_frame(frame.kind);
                $(if number == Some(<$class as class::Class>::NUMBER) {
                    self.$field(now, class::Input::Frame { from, frame }, out);
                    return true;
                })*
                false
            }

            /// Tells the class whose group this is.
            fn of_group(&mut self, now: Now, group: GroupId, event: OfGroup, out: &mut Vec<Output>) {
                let number = class::Number::of_group(group);
                $(if number == Some(<$class as class::Class>::NUMBER) {
                    return self.$field(now, event.of(group), out);
                })*
            }

            /// Tells all classes.
            fn all(&mut self, now: Now, event: &OfAll, out: &mut Vec<Output>) {
                $(self.$field(now, event.input(), out);)*
            }

            /// Tells each class what is declared for it.
            pub fn declared(&mut self, now: Now, declaration: &Declaration<'_>, out: &mut Vec<Output>) {
                $({
                    let spaces = declaration.spaces::<$class>(NamespaceSpec::$field);
                    let declared = declaration.of::<$class>(spaces);
                    self.$field(now, class::Input::Declared(declared), out);
                })*
            }

            /// Now and then: lets each class see to what no event announces.
            pub fn tend(&mut self, now: Now, out: &mut Vec<Output>) {
                $(self.$field(now, class::Input::Tend, out);)*
            }

            /// Wakes those whose moment has come.
            pub fn wake(&mut self, now: Now, out: &mut Vec<Output>) {
                $(if class::Class::wake_at(&self.$field).is_some_and(|at| at <= now.mono) {
                    self.$field(now, class::Input::Wake, out);
                })*
            }

            pub fn wake_at(&self) -> Option<Time> {
                [$(class::Class::wake_at(&self.$field)),*].into_iter().flatten().min()
            }

            /// What others have yet to take over of what this node has, while it leaves for good.
            pub fn counted_on(&self) -> Option<String> {
                [$(class::Class::counted_on(&self.$field)),*].into_iter().flatten().next()
            }

            /// How long nodes are waited for that are away.
            pub fn waits(&self) -> Option<class::Waits> {
                [$(class::Class::waits(&self.$field)),*].into_iter().flatten().next()
            }

            /// Why no namespace may be of this class where this node takes declarations, if that is so.
            pub fn lacks(&self, class: Class) -> Option<&'static str> {
                match class {
                    $(Class::$Variant => class::Class::lacks(&self.$field)),*
                }
            }

            /// What this node tells the others.
            pub fn report(&mut self, now: Time) -> Reports {
                Reports { $($field: class::Class::report(&mut self.$field, now)),* }
            }

            /// Tells those that want it what their parts of another node told last.
            pub fn told(&mut self, now: Now, from: NodeId, reports: &Reports, out: &mut Vec<Output>) {
                $(if <$class as class::Class>::HEARS {
                    self.$field(now, class::Input::Told { from, report: reports.$field.clone() }, out);
                })*
            }

            /// What this node has of each namespace, and what that part may have.
            pub fn used(&self) -> Vec<(&str, class::Used, class::Bounds)> {
                let mut all = Vec::new();
                $(all.extend(class::Class::used(&self.$field));)*
                all
            }

            /// How many nodes tell of each key of such a namespace, while so many live; none if nothing is told of it.
            pub fn copies(&self, spec: &NamespaceSpec, live: usize) -> Option<u64> {
                match spec {
                    $(NamespaceSpec::$Variant(spec) => class::Class::copies(&self.$field, spec, live)),*
                }
            }

            /// What a class plans at the root group's leader, with its records as they are kept.
            pub fn plan(&self, class: Class, ahead: &Ahead<'_>) -> class::Plan<Bytes> {
                match class {
                    $(Class::$Variant => {
                        let outlook = ahead.of::<$class>(|reports| &reports.$field);
                        class::Class::plan(&self.$field, &outlook).map(|record| written(&record))
                    })*
                }
            }

            /// Why a node that leaves is still needed by a class: the first that needs it says so.
            pub fn needs(&self, view: &View<'_>, leaver: class::Leaver) -> Option<String> {
                $(
                    let scene = view.of::<$class>(NamespaceSpec::$field);
                    if let Some(why) = class::Class::needs(&self.$field, &scene, leaver) {
                        return Some(why);
                    }
                )*
                None
            }

            /// All figures with their values.
            pub fn shown(&self) -> impl Iterator<Item = (&'static class::Figure, u64)> {
                let shown = std::iter::empty();
                $(let shown = shown.chain(class::Class::shown(&self.$field));)*
                shown
            }

            /// The stages of all classes, by name, since the last look.
            pub fn stages(&mut self, now: Time) -> Vec<(&'static str, Shown)> {
                let mut stages = Vec::new();
                $(stages.extend(class::Class::stages(&mut self.$field, now));)*
                stages
            }
        }
    };
}

/// Has a class take an input, and gives what it wants in words of all classes.
pub(crate) fn run<C: class::Class>(
    machine: &mut C,
    wants: &mut Vec<class::Output<Outcome<C::Reply>>>,
    recovering: &mut Recovering,
    answer: fn(Outcome<C::Reply>) -> Answer,
    now: Now,
    input: Input<C>,
    out: &mut Vec<Output>,
) {
    machine.handle(now, input, wants);
    for want in wants.drain(..) {
        // One class does not speak for the others.
        if matches!(want, class::Output::Recovered) && !recovering.ends(C::NUMBER) {
            continue;
        }
        out.push(want.map(answer));
    }
}

pub(crate) use classes;
