//! Options of `coppice run` and `coppice up` that are the classes' own (`class::Flag`): both pass on what was said, and only the class
//! knows what it means.

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use state::Settings;

/// Names of the options that were said.
#[derive(Clone, Default, Debug)]
pub struct ClassFlags(Vec<&'static str>);

impl ClassFlags {
    /// What they tell the classes of a node.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for name in &self.0 {
            let is_known = settings.flag(name);
            debug_assert!(is_known, "it came from the list");
        }
        settings
    }

    /// As they are said to another program.
    pub fn options(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|name| format!("--{name}"))
    }
}

impl clap::Args for ClassFlags {
    fn augment_args(command: Command) -> Command {
        let arg = |(name, help)| Arg::new(name).long(name).help(help).action(ArgAction::SetTrue);
        Settings::flags().map(arg).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ClassFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Settings::flags().map(|(name, _)| name).filter(|name| matches.get_flag(name)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Said {
        #[command(flatten)]
        classes: ClassFlags,
    }

    #[test]
    fn what_a_class_is_told_on_the_line_reaches_it_and_the_nodes_that_are_started() {
        let said = |words: &[&str]| Said::try_parse_from([&["coppice"], words].concat()).unwrap().classes;
        for (name, _) in Settings::flags() {
            let option = format!("--{name}");
            let told = said(&[&option]);
            assert_eq!(told.options().collect::<Vec<_>>(), [option]);
            assert_ne!(
                format!("{:?}", told.settings()),
                format!("{:?}", Settings::default()),
                "--{name} changes nothing"
            );
        }
        assert_eq!(said(&[]).options().count(), 0);
        assert!(!Settings::default().flag("no-such"), "there is none of this name");
    }
}
