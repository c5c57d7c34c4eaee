//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};

use crate::failure;

/// Run a command under a lease: one at a time, on this machine or on several, and never longer than the lease lasts.
#[derive(Debug, Parser)]
#[command(name = "keylatch", version, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// Where the leases are, and how this program authenticates.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Where the leases are")]
pub(crate) struct Place {
    /// Where the leases are: see `keylatch engines` (default: a file of this user)
    #[arg(long, global = true, env = "KEYLATCH_ENGINE", hide_env_values = true, value_name = "URL")]
    pub(crate) engine: Option<String>,
    /// A file with the password for the engine; it is read again at each connection
    #[arg(long, global = true, env = "KEYLATCH_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The certificates to trust, instead of the system's
    #[arg(long, global = true, env = "KEYLATCH_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client
    #[arg(long, global = true, env = "KEYLATCH_CERT", value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, global = true, env = "KEYLATCH_KEY", value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

/// The longest time that an argument may be. Every clock can represent it.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a command while holding a lease, and release it when the command ends
    Run(Run),
    /// Run a command for as long as this process leads; after a loss, again when it leads again
    Lead(Run),
    /// List who has what, since when, and for how much longer
    Ls {
        /// Only the leases of this owner
        #[arg(long)]
        owner: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Say who has a lease; exit with 1 if nobody has it
    Who {
        /// The name of the lease
        name: String,
        /// A JSON object, or null
        #[arg(long)]
        json: bool,
    },
    /// Say who has a lease, whenever that changes
    Watch {
        /// The name of the lease
        name: String,
        /// One JSON object, or null, per line
        #[arg(long)]
        json: bool,
    },
    /// End the tenure with this token, whoever has it
    Release {
        /// The name of the lease
        name: String,
        /// The token, as `ls` and `who` show it
        #[arg(long)]
        token: u64,
    },
    /// End everything that an owner has
    ReleaseAll {
        /// The owner's name, as `ls` shows it
        owner: String,
    },
    /// Prepare a server that has no leases yet: make the tables, and open the namespace at once
    Init,
    /// List the engines that are built in and their URLs, and say which one is in use
    Engines,
}

// The variants have no doc comments, because these would make `--help` long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    Kill,
    Warn,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Do not wait if somebody else has the lease
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) is_trying: bool,
    /// Wait for at most this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// The time after which the lease ends unless it is renewed, which happens every third of it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// The time before the end of the lease at which the command is ended if no renewal has succeeded (default: a fifth
    /// of the ttl)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// Kill the command before its lease ends, or only warn if the lease is lost
    #[arg(long, value_enum, default_value = "kill", value_name = "ACTION")]
    pub(crate) on_loss: OnLoss,
    /// The exit code if somebody else has the lease
    #[arg(long, value_name = "CODE", default_value_t = failure::BUSY)]
    pub(crate) busy_code: u8,
    /// The name that others see (default: user@host:pid)
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Say nothing about others that have the lease
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The name of the lease
    pub(crate) name: String,
    /// The command, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// Returns the time that the lease has left when the command is asked to end.
    pub(crate) fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.ttl / 5)
    }
}

fn time(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the unit is missing: {text}s, {text}m or {text}h"));
    }
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > LONGEST { Err("it is more than a century".into()) } else { Ok(time) }
}

fn ttl(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < Duration::from_millis(100) {
        return Err("a lease must last for at least 100ms".into());
    }
    Ok(time)
}
