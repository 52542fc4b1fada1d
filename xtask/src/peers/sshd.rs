//! An OpenSSH server on loopback with throw-away keys.
//!
//! | | |
//! |---|---|
//! | needs | root; Debian's openssh-server and openssh-client |
//! | private | port, keys, configuration, `/run`, process numbers; files and network are the machine's |
//! | cleans up | its cell ends and every session with it; the keys stay in the state directory |

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::apt::Need;
use super::cell::{Cell, Isolation, Spec};
use super::dirs::{self, Dirs};
use super::report::Access;
use super::run;
use super::user;

pub(crate) const NAME: &str = "sshd";

pub(crate) const NEEDS: &[Need] = &[
    Need { program: "sshd", package: "openssh-server" },
    Need { program: "ssh", package: "openssh-client" },
    Need { program: "ssh-keygen", package: "openssh-client" },
];

pub(crate) const HOST: &str = "127.0.0.1";
const ROOT_ALIAS: &str = "hermes-test";
const USER_ALIAS: &str = "hermes-test-user";
const PORT: &str = "ssh/port";
const LIMIT: Duration = Duration::from_secs(20);

/// Starts sshd unless a login works already.
pub(crate) fn up(dirs: &Dirs) -> Result<()> {
    let user = user::ensure()?;
    dirs::make(&dirs.state("ssh"), 0o700)?;
    dirs::make(&dirs.run("ssh"), 0o755)?;
    for key in ["ssh/host_key", "ssh/user_key"] {
        make_key(&dirs.state(key))?;
    }
    let cell = Cell::new(dirs, NAME);
    let port = port(dirs, PORT, &cell)?;
    write_files(dirs, port, &user.name)?;
    let spec = Spec {
        network: Isolation::Machine,
        processes: Isolation::Private,
        script: include_str!("sshd.sh"),
        args: vec![dirs.run_root().into(), dirs.run("ssh/sshd_config").into(), port.to_string().into()],
    };
    cell.ensure(&spec, || log_in(dirs)).map(drop)
}

/// Stops sshd and every session.
pub(crate) fn down(dirs: &Dirs) -> Result<()> {
    Cell::new(dirs, NAME).stop()?;
    dirs::remove(&dirs.run("ssh"))
}

/// Logs in.
pub(crate) fn probe(dirs: &Dirs) -> Result<Access> {
    let port = recorded_port(dirs, PORT).context("never started")?;
    log_in(dirs)?;
    Ok(Access::Ssh {
        config: dirs.state("ssh/config"),
        root_alias: ROOT_ALIAS.to_owned(),
        user_alias: USER_ALIAS.to_owned(),
        host: HOST.to_owned(),
        port,
        identity: dirs.state("ssh/user_key"),
        known_hosts: dirs.state("ssh/known_hosts"),
    })
}

fn log_in(dirs: &Dirs) -> Result<()> {
    for alias in [ROOT_ALIAS, USER_ALIAS] {
        let mut ssh = run::command("ssh");
        ssh.arg("-F").arg(dirs.state("ssh/config")).args([alias, "true"]);
        run::output(&mut ssh, LIMIT).with_context(|| format!("logging in as {alias}"))?;
    }
    Ok(())
}

fn make_key(path: &Path) -> Result<()> {
    // The public key is written last: without it the pair is incomplete.
    if path.with_added_extension("pub").exists() {
        return Ok(());
    }
    dirs::remove(path)?;
    let mut keygen = run::command("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "hermes-test", "-f"]).arg(path);
    run::output(&mut keygen, LIMIT).map(drop)
}

/// Returns the current or previous port of a cell if it is usable, or else a free one.
pub(crate) fn port(dirs: &Dirs, record: &str, cell: &Cell<'_>) -> Result<u16> {
    match recorded_port(dirs, record) {
        Some(port) if cell.init()?.is_some() || free(port) => Ok(port),
        _ => Ok(TcpListener::bind((HOST, 0))?.local_addr()?.port()),
    }
}

fn recorded_port(dirs: &Dirs, record: &str) -> Option<u16> {
    fs::read_to_string(dirs.state(record)).ok()?.trim().parse().ok()
}

fn free(port: u16) -> bool {
    TcpListener::bind((HOST, port)).is_ok()
}

fn write_files(dirs: &Dirs, port: u16, user: &str) -> Result<()> {
    let host_key = dirs.state("ssh/host_key");
    let user_key = dirs.state("ssh/user_key");
    let known_hosts = dirs.state("ssh/known_hosts");
    let public = |path: &Path| {
        let path = path.with_added_extension("pub");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    // sshd reads this file as the login user, who may have no access to the state directory.
    let authorized_keys = dirs.run("ssh/authorized_keys");
    dirs::write(&authorized_keys, &public(&user_key)?, 0o644)?;
    dirs::write(&known_hosts, &format!("[{HOST}]:{port} {}", public(&host_key)?), 0o644)?;
    let server = format!(
        "ListenAddress {HOST}:{port}\n\
         HostKey \"{host_key}\"\n\
         AuthorizedKeysFile \"{authorized_keys}\"\n\
         AllowUsers root {user}\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         StrictModes no\n\
         UsePAM no\n\
         PidFile none\n\
         MaxSessions 100\n\
         MaxStartups 100\n\
         Subsystem sftp internal-sftp\n",
        host_key = host_key.display(),
        authorized_keys = authorized_keys.display(),
    );
    dirs::write(&dirs.run("ssh/sshd_config"), &server, 0o600)?;
    let client = format!(
        "Host {ROOT_ALIAS}\n  User root\n\
         Host {USER_ALIAS}\n  User {user}\n\
         Host {ROOT_ALIAS} {USER_ALIAS}\n  \
           HostName {HOST}\n  \
           Port {port}\n  \
           IdentityFile \"{identity}\"\n  \
           IdentitiesOnly yes\n  \
           IdentityAgent none\n  \
           UserKnownHostsFile \"{known_hosts}\"\n  \
           GlobalKnownHostsFile none\n  \
           StrictHostKeyChecking yes\n  \
           BatchMode yes\n  \
           ConnectTimeout 10\n",
        identity = user_key.display(),
        known_hosts = known_hosts.display(),
    );
    dirs::write(&dirs.state("ssh/config"), &client, 0o644)?;
    dirs::write(&dirs.state(PORT), &format!("{port}\n"), 0o644)
}
