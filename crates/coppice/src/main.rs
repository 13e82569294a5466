//! The one program, all machines alike: command line and wiring. What a node does is in the other crates.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![warn(clippy::print_stdout, clippy::print_stderr)] // `plain` is how it is printed

mod acme;
mod anew;
mod authority;
mod away_for;
mod backup;
mod certificate;
mod certificates;
mod class_flags;
mod client;
mod demo;
mod deploy;
mod desks;
mod doorman;
mod doors;
mod dump;
mod events;
mod follow;
mod found;
mod handover;
mod happened;
mod keeper;
mod load;
mod logbook;
mod logs;
mod nodes;
mod ns;
mod once;
mod operate;
mod own_log;
mod packaging;
mod peers;
mod plain;
mod ports;
mod postmaster;
mod program;
mod program_desk;
mod queue;
mod renew_token;
mod restore;
mod route;
mod run;
mod sealed;
mod secret;
mod services;
mod since;
mod size;
mod starting;
mod status;
mod threads;
mod top;
mod up;
mod upgrade;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Robust network services on a cluster of ordinary machines.
#[derive(Parser)]
#[command(version, long_version = program::long_version(), after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster with an example shop on this machine, and end it with Ctrl-C
    #[command(
        after_help = "Examples:\n  coppice up\n  coppice up --nodes 5 --no-demo --json\n  coppice up --demo shop\n  coppice up --http-port 8081 --resp-port 6380"
    )]
    Up(up::UpArgs),
    /// Found a cluster: its authority, this node's identity, the operator's token
    #[command(after_help = "Example:\n  coppice init --dir /var/lib/coppice --cluster shop --name n1 --host 10.0.0.1")]
    Init(found::InitArgs),
    /// Make a token with which another machine can join, once; list them, or end one
    #[command(
        after_help = "Examples:\n  coppice token --ttl 10m\n  coppice token --uses 5\n  coppice token list\n  coppice token revoke 1f00a2b3\n  coppice token renew operator",
        args_conflicts_with_subcommands = true
    )]
    Token(operate::TokenArgs),
    /// Join a cluster with a token from `coppice token`
    #[command(after_help = "Example:\n  coppice join --dir /var/lib/coppice --name n2 --host 10.0.0.2 TOKEN")]
    Join(found::JoinArgs),
    /// Run the node whose identity is in a folder (after init or join); with SERVICE -- COMMAND, a command as one of its clones
    #[command(
        after_help = "Examples:\n  coppice run --dir /var/lib/coppice\n  coppice run shop -- python3 manage.py check    a command once, in the service's folder (`coppice run SERVICE --help`)"
    )]
    Run(run::RunArgs),
    /// Run a command once, as a clone of a service: its folder, environment, secrets and sandbox, its output here
    #[command(name = once::NAME, hide = true, override_usage = once::USAGE, after_help = once::MORE)]
    Once(once::OnceArgs),
    /// Make the cluster be as a file declares it, all of it or nothing
    #[command(after_help = "Example:\n  coppice apply -f shop.toml")]
    Apply(operate::ApplyArgs),
    /// Show what `apply` would change
    #[command(after_help = "Example:\n  coppice diff -f shop.toml")]
    Diff(operate::ApplyArgs),
    /// Print what is declared, as a file that `apply` takes
    Export(operate::NodeArgs),
    /// Make a folder the next version of a service, clone by clone; one that is worse goes back by itself
    #[command(after_help = "Examples:\n  coppice deploy ./shop\n  coppice deploy ./shop --service shop --json")]
    Deploy(deploy::DeployArgs),
    /// Take back a version that is being rolled out, or go back to an older one
    #[command(after_help = "Examples:\n  coppice rollback shop\n  coppice rollback shop --to 3")]
    Rollback(deploy::RollbackArgs),
    /// List the versions of a service
    #[command(after_help = "Example:\n  coppice versions shop")]
    Versions(deploy::VersionsArgs),
    /// Give a service another number of clones, without its file
    #[command(
        after_help = "Examples:\n  coppice scale shop 3\n  coppice scale shop 2..8    the manager chooses, by what requests wait"
    )]
    Scale(operate::ScaleArgs),
    /// End a service, with its versions and secrets; its namespaces stay
    #[command(
        after_help = "Example:\n  coppice remove shop\n\n`coppice disable shop` takes it out of use and keeps it."
    )]
    Remove(operate::RemoveArgs),
    /// Give a service's clones secrets: passwords, keys
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Certificates of the cluster, which every node's HTTPS door shows
    #[command(subcommand)]
    Certificate(certificates::CertificateCommand),
    /// Give the cluster another authority, which signs the certificates of nodes
    #[command(subcommand)]
    Ca(authority::AuthorityCommand),
    /// Put another program on all nodes and restart them in turn as that one, or go back to the one before
    #[command(after_help = upgrade::MORE)]
    Upgrade(upgrade::UpgradeArgs),
    /// Restart nodes, one or all in turn, remove one, or drain one, under load
    #[command(subcommand)]
    Node(nodes::NodeCommand),
    /// Take a service, a clone or a partition out of use: its requests are refused with 503, its clones end
    #[command(
        after_help = "Examples:\n  coppice disable shop\n  coppice disable shop/2        one clone\n  coppice disable shop:search   one partition"
    )]
    Disable(operate::SwitchArgs),
    /// Put back into use what `disable` took out
    #[command(after_help = "Example:\n  coppice enable shop")]
    Enable(operate::SwitchArgs),
    /// Show namespaces: what each promises, the odds of a loss, groups and hot keys
    #[command(subcommand)]
    Ns(ns::NsCommand),
    /// Show queues of jobs, and put dead jobs back
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Write the cluster to a folder: declaration, code, and all namespaces that are on disk
    #[command(after_help = backup::BACKUP_MORE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Backup(backup::BackupArgs),
    /// Put what `backup` has written into a new cluster, or one namespace of it into any
    #[command(after_help = restore::RESTORE_MORE)]
    Restore(restore::RestoreArgs),
    /// Show nodes, services, clones and namespaces
    #[command(after_help = "Examples:\n  coppice status\n  coppice status --json | jq '.nodes[].name'")]
    Status(operate::StatusArgs),
    /// Watch nodes, services and events in the terminal, drawn anew each second
    #[command(after_help = top::MORE)]
    Top(top::TopArgs),
    /// Send requests at a rate or as a trace has them, and measure what becomes of them
    #[command(after_help = load::EXAMPLES)]
    Load(load::LoadArgs),
    /// Show what happened, and what the manager decided and why
    #[command(after_help = happened::MORE)]
    Events(happened::EventsArgs),
    /// Show what the clones of a service have printed, on all nodes
    #[command(after_help = logs::MORE)]
    Logs(logs::LogsArgs),
    /// Say where requests go, and why
    #[command(subcommand)]
    Route(route::RouteCommand),
    /// Accounts and aliases of the built-in mail
    #[command(subcommand)]
    Mail(postmaster::MailCommand),
    /// Print what completes this command line in a shell
    #[command(
        after_help = "Example:\n  coppice completions bash > ~/.local/share/bash-completion/completions/coppice\n\nThe package has them."
    )]
    Completions(packaging::CompletionsArgs),
    /// Write the man pages to a folder
    #[command(hide = true)]
    Man(packaging::ManArgs),
}

const EXAMPLES: &str = "\
Examples:
  coppice up                         three nodes and an example shop on this machine
  coppice status                     what runs where
  coppice top                        the same, live
  coppice apply -f shop.toml         declare a service
  coppice logs -f shop               what its clones print
  coppice run shop -- ls             a command once, in its folder, with its environment
  coppice load http://127.0.0.1:8080/ --rate 500    how it bears a load
  coppice route explain http://shop.example/cart    which service and partition takes it, and why
  coppice init --name n1 --host 10.0.0.1    the first node of a cluster on several machines";

fn main() {
    // The node starts its children through this program; these are not for people and do not parse options.
    let mut args = std::env::args_os();
    let _program = args.next();
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("keep") => host::keep_main(args),
        Some("reap") => host::reap_main(args),
        Some(base::process::SERVE_BUILTIN) => services::serve_main(args),
        Some(base::process::SERVE_WORKER) => {
            run::log();
            stub::serve_main(args)
        }
        Some(_) | None => (),
    }
    let command = Cli::parse_from(once::renamed(std::env::args_os().collect())).command;
    if matches!(command, Command::Up(_) | Command::Init(_) | Command::Join(_) | Command::Run(_)) {
        host::private::begin();
    }
    let done = match command {
        Command::Up(args) => single(up::up(args)),
        Command::Init(args) => found::init_command(&args),
        Command::Join(args) => single(found::join_command(args)),
        Command::Run(args) => run::run(args),
        Command::Once(args) => single(once::once(args)),
        Command::Token(args) => single(operate::token(args)),
        Command::Apply(args) => single(operate::apply(args, false)),
        Command::Diff(args) => single(operate::apply(args, true)),
        Command::Export(args) => single(operate::export(args)),
        Command::Deploy(args) => single(deploy::deploy(args)),
        Command::Rollback(args) => single(deploy::rollback(args)),
        Command::Versions(args) => single(deploy::versions(args)),
        Command::Scale(args) => single(operate::scale(args)),
        Command::Remove(args) => single(operate::remove(args)),
        Command::Secret(command) => single(secret::secret(command)),
        Command::Certificate(command) => single(certificates::certificate(command)),
        Command::Ca(command) => single(authority::authority(command)),
        Command::Upgrade(args) => single(upgrade::upgrade(args)),
        Command::Node(command) => single(nodes::node(command)),
        Command::Disable(args) => single(operate::switch(args, true)),
        Command::Enable(args) => single(operate::switch(args, false)),
        Command::Ns(command) => single(ns::ns(command)),
        Command::Queue(command) => single(queue::queue(command)),
        Command::Backup(args) => single(backup::backup(args)),
        Command::Restore(args) => single(restore::restore(args)),
        Command::Events(args) => single(happened::events(args)),
        Command::Logs(args) => single(logs::logs(args)),
        Command::Status(args) => single(operate::status(args)),
        Command::Top(args) => single(top::top(args)),
        Command::Load(args) => load::load(args),
        Command::Mail(command) => single(postmaster::mail(command)),
        Command::Completions(args) => packaging::completions(&args, <Cli as clap::CommandFactory>::command()),
        Command::Man(args) => packaging::man(&args, <Cli as clap::CommandFactory>::command()),
        Command::Route(route::RouteCommand::Explain(args)) => single(route::explain(args)),
    };
    if let Err(error) = done {
        plain::complain!("coppice: {error}");
        std::process::exit(1);
    }
}

/// Runs a command on this very thread: the nodes of `up` end with the thread that started them.
fn single(command: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("cannot start: {e}"))?.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_told_what_would_be_right() {
        let wrong = |words: &[&str]| Cli::try_parse_from([&["coppice"], words].concat()).err().unwrap().to_string();
        for (words, told) in [
            (&["token", "--ttl", "5"][..], "like \"30m\""),
            (&["load", "https://127.0.0.1/"], "load the plain port"),
            (&["node", "restart"], "--rolling>"),
            (&["ns", "--help"], "of linear"),
            (&["scale", "shop", "many"], "a range like 1..8"),
            (&["node", "restart", "n1", "--rolling"], "cannot be used with"),
        ] {
            assert!(wrong(words).contains(told), "{}", wrong(words));
        }
        for right in [&["node", "restart", "n1"][..], &["node", "restart", "--rolling"], &["token", "--ttl", "5m"]] {
            assert!(Cli::try_parse_from([&["coppice"], right].concat()).is_ok(), "{right:?}");
        }
    }
}
