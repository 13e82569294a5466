//! Postfix and Dovecot as the peer of the mail service: Postfix writes Maildirs, Dovecot reads them. Both with folders and
//! ports of their own; they start as root alone, as they give their work to other users.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::cluster::free_port;
use crate::letters::{DOMAIN, Door, PASSWORD};
use crate::peers::{Program, scratch, wait_until};

const PACKAGES: &str = "postfix, or dovecot-core and dovecot-pop3d";
/// Whom the mailboxes belong to: nobody who has a name.
const OWNER: u32 = 5000;

pub struct Postfix {
    dovecot: Program,
    /// Ended last, as all lies in its folder.
    master: Program,
    pub door: Door,
}

impl Postfix {
    pub fn start(users: usize) -> Result<Postfix, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("Postfix and Dovecot start as root alone, so they were not run".into());
        }
        let (smtp, pop) = (free_port(1)?, free_port(1)?);
        let dir = scratch(&format!("postfix-{smtp}"));
        let at = dir.display().to_string();
        for folder in ["etc", "queue", "data", "mail", "dovecot"] {
            std::fs::create_dir_all(dir.join(folder)).map_err(|e| format!("cannot make {at}/{folder}: {e}"))?;
        }
        std::os::unix::fs::chown(dir.join("mail"), Some(OWNER), Some(OWNER)).map_err(|e| e.to_string())?;
        write(&dir.join("etc/main.cf"), &main_cf(&at))?;
        write(&dir.join("etc/master.cf"), &master_cf(smtp))?;
        let all: String = (0..users).map(|n| format!("u{n}@{DOMAIN} u{n}/\n")).collect();
        write(&dir.join("etc/users"), &all)?;
        write(&dir.join("dovecot/dovecot.conf"), &dovecot_conf(&at, pop))?;
        said(Command::new("chown").arg("postfix").arg(dir.join("data")))?;
        let etc = format!("{at}/etc");
        // It makes what a queue has.
        said(Command::new("postfix").args(["-c", &etc, "check"]))?;
        let master = Program::start(PACKAGES, "/usr/lib/postfix/sbin/master", dir.clone(), &["-c", &etc, "-d"])?;
        let conf = format!("{at}/dovecot/dovecot.conf");
        let dovecot = Program::start(PACKAGES, "dovecot", dir.join("dovecot"), &["-F", "-c", &conf])?;
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let door = Door { smtp: addr(smtp), pop: addr(pop) };
        wait_until("Postfix and Dovecot greet", || greets(door))?;
        Ok(Postfix { dovecot, master, door })
    }

    pub fn pids(&self) -> Vec<i32> {
        vec![self.master.pid(), self.dovecot.pid()]
    }
}

/// Whether both ports say what a server of mail begins with.
pub fn greets(door: Door) -> bool {
    let begins = |addr, with| crate::peers::ask(addr, b"").is_some_and(|said| said.starts_with(with));
    begins(door.smtp, "220") && begins(door.pop, "+OK")
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

fn said(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name} cannot be started ({e}); it is in {PACKAGES}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// As Debian has it, but for names, folders and one port; each letter is forced to disk, in the queue and in its Maildir.
fn main_cf(at: &str) -> String {
    format!(
        "compatibility_level = 3.6\nqueue_directory = {at}/queue\ndata_directory = {at}/data\n\
         command_directory = /usr/sbin\ndaemon_directory = /usr/lib/postfix/sbin\nmail_owner = postfix\n\
         setgid_group = postdrop\ninet_interfaces = 127.0.0.1\ninet_protocols = ipv4\nmyhostname = mail.{DOMAIN}\n\
         mydestination =\nalias_maps =\nlocal_recipient_maps =\nsmtpd_peername_lookup = no\n\
         virtual_mailbox_domains = {DOMAIN}\nvirtual_mailbox_maps = texthash:{at}/etc/users\n\
         virtual_mailbox_base = {at}/mail\nvirtual_uid_maps = static:{OWNER}\nvirtual_gid_maps = static:{OWNER}\n\
         smtpd_recipient_restrictions = permit_mynetworks, reject_unauth_destination\n"
    )
}

fn master_cf(smtp: u16) -> String {
    format!(
        "127.0.0.1:{smtp} inet n - n - - smtpd\npickup unix n - n 60 1 pickup\ncleanup unix n - n - 0 cleanup\n\
         qmgr unix n - n 300 1 qmgr\nrewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\n\
         defer unix - - n - 0 bounce\ntrace unix - - n - 0 bounce\nflush unix n - n 1000? 0 flush\n\
         proxymap unix - - n - - proxymap\nerror unix - - n - - error\nretry unix - - n - - error\n\
         virtual unix - n n - - virtual\nanvil unix - - n - 1 anvil\nscache unix - - n - 1 scache\n"
    )
}

fn dovecot_conf(at: &str, pop: u16) -> String {
    format!(
        "base_dir = {at}/dovecot/run\nstate_dir = {at}/dovecot/state\nlog_path = {at}/dovecot/log\nprotocols = pop3\n\
         ssl = no\nlisten = 127.0.0.1\ndisable_plaintext_auth = no\nmail_location = maildir:{at}/mail/%n\n\
         first_valid_uid = {OWNER}\nauth_cache_size = 10M\nmail_max_userip_connections = 0\n\
         passdb {{\n driver = static\n args = password={PASSWORD}\n}}\n\
         userdb {{\n driver = static\n args = uid={OWNER} gid={OWNER} home={at}/mail/%n\n}}\n\
         service pop3-login {{\n service_count = 0\n process_min_avail = 2\n\
         inet_listener pop3 {{\n address = 127.0.0.1\n port = {pop}\n }}\n}}\n\
         service pop3 {{\n service_count = 100\n process_min_avail = 8\n}}\n"
    )
}
