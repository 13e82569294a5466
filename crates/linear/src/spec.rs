//! What is declared of a `linear` namespace: its groups, where an acknowledged write is, which functions are weak or a service's.

use class::{Databases, Key, Line, Quota, Wrong, is_number};
use serde_json::{Map, Value};

use super::functions;
use super::limits::SHARDS_MAX;
use super::place::Wanted;

/// The level of programs from which `shards = "auto"` may be declared (`base/src/level.rs`).
const AUTO_LEVEL: u32 = 6;

/// One declared namespace: `shards = 1`, `replicas = 3`, `durability = "disk"`, `weak = ["set.add"]`, `functions = "bank"`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spec {
    /// Consensus groups that its keys are spread over. None: one, and it stays one: programs that use several keys at a time would
    /// not bear more.
    pub shards: Option<Shards>,
    /// Members of each group. None: 3.
    pub replicas: Option<u32>,
    /// Where an acknowledged write is. None: on disk.
    pub durability: Option<Durability>,
    /// Functions whose callers need no reply but that it is done (`together.rs`).
    pub weak: Vec<String>,
    /// The service whose clones know functions besides those that are built in.
    pub functions: Option<String>,
    pub databases: Databases,
    pub quota: Quota,
}

/// How many groups the keys are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shards {
    /// So many.
    Count(u32),
    /// One, and more when they are large.
    Auto,
}

impl Shards {
    const AUTO: &'static str = "auto";

    /// How many, if it is said.
    pub fn count(self) -> Option<u32> {
        match self {
            Shards::Count(count) => Some(count),
            Shards::Auto => None,
        }
    }

    fn read(value: &Value) -> Result<Self, Wrong> {
        if value.as_str() == Some(Self::AUTO) {
            return Ok(Shards::Auto);
        }
        if value.is_string() {
            let why = "write how many, like shards = 3, or shards = \"auto\": one, and more when they are large";
            return Err(("shards".to_owned(), why.to_owned()));
        }
        is_number("shards", value).map(Shards::Count)
    }
}

impl From<Shards> for Value {
    fn from(shards: Shards) -> Value {
        match shards {
            Shards::Count(count) => count.into(),
            Shards::Auto => Shards::AUTO.into(),
        }
    }
}

/// Where an acknowledged write is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// On the disks of a majority of the group's nodes.
    Disk,
    /// In the memory of a majority, and on their disks within about [`base::limits::UNFORCED_MAX`].
    Memory,
}

impl Durability {
    pub const ALL: [Durability; 2] = [Durability::Disk, Durability::Memory];

    pub fn name(self) -> &'static str {
        match self {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
        }
    }

    fn read(value: &Value) -> Result<Self, Wrong> {
        let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Durability::ALL.into_iter().find(|durability| durability.name() == name).ok_or_else(|| {
            let why = format!(
                "durability \"{name}\" is not known; known are \"disk\" (an acknowledged write is on a majority's disks) \
                 and \"memory\" (it is in a majority's memory, and on their disks soon after)"
            );
            ("durability".to_owned(), why)
        })
    }
}

impl Spec {
    /// Groups and members that it is to have.
    pub fn groups(&self) -> Wanted {
        let memory = self.durability() == Durability::Memory;
        let (shards, grows) = (self.shards.and_then(Shards::count), self.shards == Some(Shards::Auto));
        Wanted { shards, grows, replicas: self.replicas.unwrap_or(3), memory }
    }

    /// Where an acknowledged write is.
    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or(Durability::Disk)
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key {
            name: "shards",
            example: "4",
            about: "Consensus groups that its keys are spread over: 1 to 256, or \"auto\": 1, and more when they are large. Without \
                    it: 1, however large it is.",
        },
        Key { name: "replicas", example: "5", about: "Members of each group: 1, 3 or 5, default 3." },
        Key {
            name: "durability",
            example: "\"memory\"",
            about: "Where an acknowledged write is: \"disk\" (default), on a majority's disks; \"memory\", in a majority's memory, \
                    and on their disks soon after.",
        },
        Key {
            name: "weak",
            example: "[\"set.add\"]",
            about: "Functions whose callers need no reply but that it is done: several on one key are done as one.",
        },
        Key {
            name: "functions",
            example: "\"bank\"",
            about: "The service whose clones know functions besides those that are built in.",
        },
        Databases::KEY,
        Quota::BYTES_MAX,
        Quota::KEYS_MAX,
        Quota::RATE_MAX,
        Quota::CONNECTIONS_MAX,
    ];

    fn foreign(key: &str) -> Option<&'static str> {
        (key == "lease").then_some("class linear keeps values until they are removed; give a key an end with EX")
    }

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let number = |key: &str| keys.get(key).map(|value| is_number(key, value)).transpose();
        let weak = keys.get("weak").map(|value| texts("weak", value)).transpose()?;
        let functions = keys.get("functions").map(|value| match value.as_str() {
            Some(name) => Ok(name.to_owned()),
            None => Err(("functions".to_owned(), "write the name of a service, like functions = \"bank\"".to_owned())),
        });
        Ok(Self {
            shards: keys.get("shards").map(Shards::read).transpose()?,
            replicas: number("replicas")?,
            durability: keys.get("durability").map(Durability::read).transpose()?,
            weak: weak.unwrap_or_default(),
            functions: functions.transpose()?,
            databases: Databases::read(keys)?,
            quota: Quota::read(keys)?,
        })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let Self { shards, replicas, durability, weak, functions, databases, quota } = self;
        let weak = (!weak.is_empty()).then(|| weak.clone().into());
        let keys = [
            ("shards", shards.map(Value::from)),
            ("replicas", replicas.map(Value::from)),
            ("durability", durability.map(|durability| durability.name().into())),
            ("weak", weak),
            ("functions", functions.clone().map(Value::from)),
        ];
        let own = keys.into_iter().filter_map(|(key, value)| Some((key, value?)));
        own.chain(databases.write()).chain(quota.write()).collect()
    }

    fn validate(&self) -> Result<(), Wrong> {
        let wrong = |key: &str, why: String| Err((key.to_owned(), why));
        if !(1..=SHARDS_MAX).contains(&self.shards.and_then(Shards::count).unwrap_or(1)) {
            return wrong("shards", format!("write a number from 1 to {SHARDS_MAX}"));
        }
        if ![1, 3, 5].contains(&self.replicas.unwrap_or(3)) {
            let why = "write 1, 3 or 5; an even number survives no more than the odd one below it";
            return wrong("replicas", why.into());
        }
        if self.durability == Some(Durability::Memory) && self.replicas == Some(1) {
            let why = "\"memory\" needs a second node's memory: write replicas = 3 or 5, or durability = \"disk\"";
            return wrong("durability", why.into());
        }
        let weak = |name: &str| functions::weak_names().any(|known| known == name);
        if let Some(other) = self.weak.iter().find(|name| !weak(name)) {
            let known: Vec<_> = functions::weak_names().collect();
            return wrong("weak", format!("\"{other}\" cannot be weak; those that can: {}", known.join(", ")));
        }
        self.databases.validate()?;
        self.quota.validate()
    }

    fn may_follow(&self, before: &Self, shards: u32) -> Result<(), Wrong> {
        if self.shards.and_then(Shards::count).is_some_and(|wanted| wanted < shards) {
            let why =
                format!("it has {shards} shards, which cannot become fewer: write {shards} or more, or leave it out");
            return Err(("shards".into(), why));
        }
        let (was, is) = (before.durability(), self.durability());
        if was != is {
            let (was, is) = (was.name(), is.name());
            let why = format!("it is \"{was}\", and cannot become \"{is}\" yet; choose another name and copy the keys");
            return Err(("durability".into(), why));
        }
        Ok(())
    }

    fn groups(&self) -> Option<Wanted> {
        Some(Spec::groups(self))
    }

    fn databases(&self) -> Option<&Databases> {
        Some(&self.databases)
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn newer_key(&self) -> Option<(&'static str, u32)> {
        let auto = (self.shards == Some(Shards::Auto)).then_some(("shards", AUTO_LEVEL));
        self.databases.newer_key().or(auto)
    }

    fn promise(&self) -> &'static str {
        if self.replicas == Some(1) {
            return "every operation is atomic and linearizable; an acknowledged write is on one node's disk, and is lost with it";
        }
        match self.durability() {
            Durability::Memory => {
                "every operation is atomic and linearizable; an acknowledged write is in the memory of a majority of its \
                 nodes, and on their disks soon after: any minority of them may be lost, and all processes may be killed"
            }
            Durability::Disk => {
                "every operation is atomic and linearizable; an acknowledged write is on a majority's disks: any minority \
                 of its nodes may be lost, and the power of all may fail"
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        let weak = (!self.weak.is_empty()).then(|| Line::new("weak functions", self.weak.join(", ")));
        let functions = self.functions.as_ref().map(|service| Line::new("functions", format!("of service {service}")));
        let split = match self.shards {
            Some(Shards::Auto) => "by themselves, when they have grown large: shards = \"auto\"".to_owned(),
            Some(Shards::Count(count)) => format!("only as declared: shards = {count}"),
            None => {
                "never by themselves, as shards is not declared; \"auto\" is for programs that bear it that keys lie apart"
                    .to_owned()
            }
        };
        let first = [Line::new("promise", self.promise()), Line::new("durability", self.durability().name())];
        first.into_iter().chain(weak).chain(functions).chain([Line::new("groups are split", split)]).collect()
    }
}

fn texts(key: &str, value: &Value) -> Result<Vec<String>, Wrong> {
    let all = value.as_array().and_then(|all| all.iter().map(|one| Some(one.as_str()?.to_owned())).collect());
    all.ok_or_else(|| (key.to_owned(), format!("write a list of names, like {key} = [\"set.add\"]")))
}

#[cfg(test)]
mod tests {
    use class::Spec as _;

    use super::*;

    #[test]
    fn limits_are_named() {
        assert_eq!(Spec::default().validate(), Ok(()));
        let memory = Spec { durability: Some(Durability::Memory), ..Spec::default() };
        assert_eq!(memory.validate(), Ok(()));
        let disk = Spec { durability: Some(Durability::Disk), ..Spec::default() };
        assert_eq!(disk.may_follow(&Spec::default(), 1), Ok(()), "it only says so");
        assert_eq!(memory.may_follow(&disk, 1).unwrap_err().0, "durability");
        assert!(disk.may_follow(&memory, 1).is_err());
        let fewer = Spec { shards: Some(Shards::Count(1)), ..Spec::default() };
        assert_eq!(fewer.may_follow(&Spec::default(), 2).unwrap_err().0, "shards");
        let auto = Spec { shards: Some(Shards::Auto), ..Spec::default() };
        assert_eq!((auto.validate(), auto.may_follow(&Spec::default(), 200)), (Ok(()), Ok(())));
        assert_eq!((auto.newer_key(), fewer.newer_key()), (Some(("shards", 6)), None));
        for (wrong, says) in [
            (Spec { replicas: Some(2), ..Spec::default() }, "replicas"),
            (Spec { shards: Some(Shards::Count(0)), ..Spec::default() }, "shards"),
            (Spec { replicas: Some(1), ..memory.clone() }, "second node's memory"),
            (Spec { weak: vec!["put".into()], ..Spec::default() }, "\\\"put\\\" cannot be weak"),
        ] {
            assert!(format!("{:?}", wrong.validate()).contains(says), "{wrong:?}");
        }
    }
}
