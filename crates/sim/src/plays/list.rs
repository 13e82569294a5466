//! From the list of plays: their names, what belongs to any of them, and [`Plays`], all of one run.

/// Makes the enums `Name`, `Act` and `Bug`, and the struct `Plays`, of lines `field Variant: type`.
macro_rules! plays {
    ($($field:ident $Variant:ident: $play:ty),* $(,)?) => {
        /// A play, as options name it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
        pub enum Name {
            $($Variant),*
        }

        impl Name {
            pub const ALL: &'static [Name] = &[$(Name::$Variant),*];

            /// As options write it.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Name::$Variant => stringify!($field)),*
                }
            }

            /// It is in every run.
            pub const fn is_always(self) -> bool {
                match self {
                    $(Name::$Variant => <$play as Play>::ALWAYS),*
                }
            }

            fn is_in(self, seed: u64) -> bool {
                match self {
                    $(Name::$Variant => <$play as Play>::is_in(seed)),*
                }
            }

            /// The namespaces that it uses, as TOML.
            pub fn declares(self, declared: &Declared) -> String {
                match self {
                    $(Name::$Variant => <$play as Play>::declares(declared)),*
                }
            }

            /// What nodes are told where it is played.
            pub fn settings(self, settings: &mut Settings) {
                match self {
                    $(Name::$Variant => <$play as Play>::settings(settings)),*
                }
            }
        }

        /// An operation under way.
        pub enum Act {
            $($Variant(<$play as Play>::Act)),*
        }

        /// A bug to plant. The promise that it breaks must be reported.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug {
            /// It is no class's.
            Node(shipped::Bug),
            $($Variant(<$play as Play>::Bug)),*
        }

        impl Bug {
            /// Where it shows.
            pub fn play(self) -> Option<Name> {
                match self {
                    Bug::Node(_) => None,
                    $(Bug::$Variant(_) => Some(Name::$Variant)),*
                }
            }

            /// What does it in one life of a node.
            pub fn plant(self, rng: Rng) -> Box<dyn Spoils> {
                match self {
                    Bug::Node(bug) => shipped::plant(bug, rng),
                    $(Bug::$Variant(bug) => <$play as Play>::plant(bug, rng)),*
                }
            }
        }

        /// All plays of a run, with clients or without.
        pub struct Plays {
            $($field: $play),*
        }

        impl Plays {
            pub fn new(cast: &mut Cast, on: &[Name]) -> Self {
                Self { $($field: <$play as Play>::new(cast, on.contains(&Name::$Variant))),* }
            }

            /// Wakes all clients for the first time.
            pub fn begin(&self, stage: &mut Stage) {
                $(
                    for client in 0..self.$field.clients() {
                        stage.world.alarm(<$play as Play>::BEGINS, Name::$Variant.token(client));
                    }
                )*
            }

            /// A client's next operation.
            pub fn ask(&mut self, token: u64, stage: &mut Stage) {
                let (name, client) = Name::of(token);
                match name {
                    $(Name::$Variant => self.$field.ask(client, stage)),*
                }
            }

            pub fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
                match act {
                    $(Act::$Variant(act) => self.$field.end(flight, act, heard, stage)),*
                }
            }

            pub fn excuse(&mut self, node: usize, mishap: Mishap, stage: &mut Stage) {
                $(self.$field.excuse(node, mishap, stage);)*
            }

            pub fn turn(&mut self) {
                $(self.$field.turn();)*
            }

            pub fn tick(&mut self, stage: &mut Stage) -> Result<(), Broken> {
                $(self.$field.tick(stage)?;)*
                Ok(())
            }

            pub fn are_whole(&self) -> bool {
                $(self.$field.is_whole())&&*
            }

            pub fn count(&self, stage: &Stage, ops: &mut BTreeMap<String, u64>) {
                $(self.$field.count(stage, ops);)*
            }
        }

        $(const _: () = assert!(<$play as Play>::NAME as usize == Name::$Variant as usize, "a play has its own name");)*
    };
}
