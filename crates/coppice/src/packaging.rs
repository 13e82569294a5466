//! What a package has beside the program, made from the command line as it is declared: completions of shells and man pages. What else
//! is in a package stands in this crate's Cargo.toml (`package.metadata.deb`) and in `packaging/`.

use std::fs;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::plain::given;

#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// The folder that they are written to
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), String> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut text);
    given(&String::from_utf8_lossy(&text));
    Ok(())
}

/// A page for the program and for each of its commands: `coppice-token-renew.1`.
pub fn man(args: &ManArgs, command: Command) -> Result<(), String> {
    let cannot = |e: std::io::Error| format!("cannot write to {}: {e}", args.dir.display());
    fs::create_dir_all(&args.dir).map_err(cannot)?;
    clap_mangen::generate_to(command, &args.dir).map_err(cannot)
}

const NAME: &str = "coppice";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_the_package_names_is_there_or_is_made() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest: toml::Table = fs::read_to_string(own.join("Cargo.toml")).unwrap().parse().unwrap();
        let deb = manifest["package"]["metadata"]["deb"].as_table().unwrap();
        let made = ["target/release/coppice", "../../target/package/completions/", "../../target/package/man/"];
        let assets = deb["assets"].as_array().unwrap();
        for asset in assets {
            let from = asset[0].as_str().unwrap();
            let is_made = made.iter().any(|made| from.starts_with(made));
            // All of a folder.
            let from = from.trim_end_matches('*');
            assert!(is_made || own.join(from).exists(), "{from}");
        }
        let goes = |to: &str| assets.iter().any(|asset| asset[1].as_str().is_some_and(|place| place == to));
        for to in ["usr/bin/", "usr/lib/systemd/system/", "usr/share/man/man1/"] {
            assert!(goes(to), "{to}");
        }
        let scripts = own.join(deb["maintainer-scripts"].as_str().unwrap());
        let script = |name: &str| fs::read_to_string(scripts.join(name)).unwrap();
        assert!(script("postinst").contains("install -d -m 0700 -o coppice -g coppice /var/lib/coppice"));
        assert!(script("prerm").contains("coppice.service") && !script("postrm").contains("rm -"));
        // The unit, the folder and the user are the same in all of them.
        let unit = fs::read_to_string(own.join("../../packaging/coppice.service")).unwrap();
        let container = fs::read_to_string(own.join("../../packaging/Containerfile")).unwrap();
        for text in [&unit, &container] {
            assert!(text.contains("/usr/bin/coppice") && text.contains("/var/lib/coppice"));
        }
        assert!(unit.contains("User=coppice\n") && unit.contains("StateDirectoryMode=0700"));
        assert!(unit.contains("\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"), "mail has ports under 1024");
    }

    #[test]
    fn every_command_has_a_page_and_is_completed() {
        let dir = std::env::temp_dir().join(format!("coppice-man-{}", std::process::id()));
        man(&ManArgs { dir: dir.clone() }, crate::Cli::command()).unwrap();
        let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert!(page("coppice.1").contains("Robust network services"));
        assert!(page("coppice-backup.1").contains("/mnt/b"), "with its examples");
        assert!(page("coppice-token-renew.1").contains("operator"));
        fs::remove_dir_all(&dir).unwrap();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut crate::Cli::command(), NAME, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("without-secrets") && text.contains("undrain"), "{shell}");
        }
    }
}
