//! Cases with other processes: many of them, processes that are stopped or killed, and some with another time of day.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use keylatch_lease::{AcquireError, Fence, Resource, Token};

use crate::{
    Failure, Fixture,
    trial::{Trial, ensure, owners},
    worker::Process,
};

/// Returns the token in a worker's answer.
fn token(said: &str) -> Result<Token, Failure> {
    let number = said.split(' ').nth(1).and_then(|number| number.parse().ok()).and_then(Token::new);
    number.ok_or_else(|| Failure::new(format!("a worker answered {said:?}")))
}

pub(super) async fn many_waiting_processes_are_served<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    /// The limit of the requests of a waiting process: this many for each second, plus this many for each process that
    /// is served while it waits.
    const REQUESTS: u64 = 10;
    let client = trial.client().await?;
    let [ann] = owners();
    let (count, patience) = (trial.caps.processes, 4 * trial.patience());
    let mut crowd = Vec::with_capacity(count);
    for _ in 0..count {
        crowd.push(trial.process(|_| ())?);
    }
    let first = client.try_acquire("form", &ann, trial.long()).await?;
    let long = trial.long().as_millis();
    let mut tickets = Vec::with_capacity(count);
    for (at, process) in crowd.iter_mut().enumerate() {
        tickets.push(process.ask(format_args!("visit form owner-{at} {long}"))?);
    }
    let requests = |crowd: &mut Vec<Process>| {
        let mut all = 0;
        for process in crowd {
            all += process.tell("requests", patience)?.parse::<u64>()?;
        }
        Ok::<_, Failure>(all)
    };
    // Each process has requested the resource by the time that it answers a later command, or soon after.
    requests(&mut crowd)?;
    trial.fixture_pass(Duration::from_millis(500)).await;
    let (start, before) = (Instant::now(), requests(&mut crowd)?);
    trial.fixture_pass(Duration::from_secs(1)).await;
    let (asked, passed) = (requests(&mut crowd)? - before, start.elapsed());
    if trial.caps.is_ttl_fixed {
        trial.weaken("the holder's lease is too short to count the waiters' requests");
    } else {
        let each = asked as f64 / count as f64 / passed.as_secs_f64();
        let is_right = each <= REQUESTS as f64;
        ensure!(trial, 9, is_right, "each waiting process makes {each:.1} requests a second");
        client.release(&first).await?;
    }
    let mut tokens = Vec::with_capacity(count);
    let start = Instant::now();
    for (process, ticket) in crowd.iter_mut().zip(tickets) {
        let left = patience.saturating_sub(start.elapsed());
        match process.poll(ticket, left)? {
            Some(said) => tokens.push(token(&said)?),
            None => return trial.wrong(9, format!("{} of {count} processes were served", tokens.len())),
        }
    }
    let passed = start.elapsed().as_secs_f64();
    let each = (requests(&mut crowd)? - before) as f64 / count as f64;
    let most = REQUESTS as f64 * (2.0 + passed + count as f64);
    let is_right = each <= most;
    ensure!(trial, 9, is_right, "each of {count} processes made {each:.0} requests while they were served");
    tokens.push(first.token());
    tokens.sort();
    tokens.dedup();
    ensure!(trial, 3, tokens.len() == count + 1, "{} tokens for {} tenures", tokens.len(), count + 1);
    Ok(())
}

pub(super) async fn a_suspended_process_cannot_write_late<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let [_, bob] = owners();
    let (form, fence, patience) = (Resource::from("form"), Fence::new(), trial.patience());
    let mut process = trial.process(|_| ())?;
    let ttl = trial.ttl();
    let old = token(&process.tell(format_args!("hold form ann {}", ttl.as_millis()), patience)?)?;
    let kept = process.ask("keep form")?;
    // The process renews its lease, and so keeps it beyond the time for which the lease was granted.
    trial.pass(ttl + ttl / 2).await?;
    let said = process.tell("check form", patience)?;
    if said.starts_with("lost") {
        // This machine may have been too slow for the renewal. The rest of the case would then show nothing.
        return Err(Failure::new(format!("a process that renews its lease got {said:?}")));
    }
    fence.admit(&form, token(&process.tell("write form", patience)?)?)?;
    process.stop()?;
    let taking = client.acquire(&form, &bob, trial.long());
    let new = match trial.within(2 * ttl + patience, "the successor of a process that was stopped", taking).await {
        Ok(got) => got?,
        Err(failure) => return trial.wrong(8, failure.to_string()),
    };
    ensure!(trial, 3, new.token() > old, "token {} was granted after {old}", new.token());
    fence.admit(&form, new.token())?;
    // The process finds these commands when it continues.
    let check = process.ask("check form")?;
    let write = process.ask("write form")?;
    process.go_on()?;
    let said = process.answer(check, patience)?;
    ensure!(trial, 2, said.starts_with("lost"), "when the process continued it got {said:?}");
    let late = token(&process.answer(write, patience)?)?;
    ensure!(trial, 3, fence.admit(&form, late).is_err(), "the fence let a late write pass, with token {late}");
    let said = process.answer(kept, patience)?;
    ensure!(trial, 10, said.starts_with("lost"), "the renewals of the process ended with {said:?}");
    let status = client.status(&form).await?;
    let is_right = status.is_some_and(|status| status.token() == new.token());
    ensure!(trial, 5, is_right, "a process that was stopped took the lease back");
    Ok(())
}

pub(super) async fn a_killed_owners_lease_passes_to_a_waiter<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let [_, _, cid] = owners();
    let (ttl, patience) = (trial.ttl(), trial.patience());
    let mut holder = trial.process(|_| ())?;
    let mut waiter = trial.process(|_| ())?;
    let mut third = trial.process(|_| ())?;
    let old = token(&holder.tell(format_args!("hold form ann {}", ttl.as_millis()), patience)?)?;
    holder.ask("keep form")?;
    waiter.ask(format_args!("acquire form bob {}", ttl.as_millis()))?;
    trial.pass(ttl / 2).await?;
    // A dead waiter keeps others out for at most the length of a lease that it may have been granted.
    let behind = third.ask(format_args!("visit form dan {}", ttl.as_millis()))?;
    waiter.kill();
    let killed = Instant::now();
    holder.kill();
    let limit = 2 * (ttl + ttl / 50) + 2 * patience;
    let new = match third.poll(behind, limit)? {
        Some(said) => token(&said)?,
        None => {
            return trial
                .wrong(8, format!("the resource was still held {:?} after its owner was killed", killed.elapsed()));
        }
    };
    ensure!(trial, 3, new > old, "token {new} was granted after {old}");
    let next = trial.soon("a free resource", client.acquire("form", &cid, ttl)).await??;
    ensure!(trial, 3, next.token() > new, "token {} was granted after {new}", next.token());
    Ok(())
}

/// Returns the path of a library that gives a process another time of day.
fn fake_time() -> Option<PathBuf> {
    let named = env::var_os("KEYLATCH_FAKETIME").map(PathBuf::from);
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().map(PathBuf::from);
    let hosts = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let usual = folders.chain(hosts).map(|folder| folder.join("faketime/libfaketime.so.1"));
    named.into_iter().chain(usual).find(|path| path.exists())
}

/// A file with the offset of the workers' time of day. It is removed when this is dropped.
struct TimeOfDay(PathBuf);

impl TimeOfDay {
    fn set(&self, offset: &str) -> Result<(), Failure> {
        Ok(fs::write(&self.0, offset)?)
    }
}

impl Drop for TimeOfDay {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) async fn the_time_of_day_does_not_matter<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let client = trial.client().await?;
    let ttl = if trial.caps.is_ttl_fixed { trial.ttl() } else { 2 * trial.ttl() };
    let (patience, millis) = (trial.patience(), ttl.as_millis());
    drop(trial.process(|_| ())?);
    let library = fake_time().ok_or_else(|| Failure::does_not_apply("libfaketime is not installed"))?;
    let time = TimeOfDay(env::temp_dir().join(format!("keylatch-time-of-day-{}", std::process::id())));
    time.set("+0s")?;
    let disguise = |command: &mut std::process::Command| {
        command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", &time.0);
        // Monotonic clocks stay as they are.
        command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    };
    let mut holder = trial.process(disguise)?;
    let mut waiter = trial.process(disguise)?;
    let old = token(&holder.tell(format_args!("hold form ann {millis}"), patience)?)?;
    holder.ask("keep form")?;
    let waiting = waiter.ask(format_args!("acquire form bob {}", trial.long().as_millis()))?;
    for offset in ["+3600s", "-3600s", "+0s"] {
        time.set(offset)?;
        let there = holder.tell("time-of-day", patience)?.parse::<u64>()?;
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        if offset != "+0s" && here.abs_diff(there) < 3000 {
            return Err(Failure::does_not_apply("libfaketime has no effect"));
        }
        trial.pass(ttl + ttl / 4).await?;
        let said = holder.tell("check form", patience)?;
        ensure!(trial, 2, said.starts_with("yes"), "with a time of day {offset} off the holder got {said:?}");
        let refused = client.try_acquire("form", &owners::<3>()[2], ttl).await;
        let is_right = matches!(refused, Err(AcquireError::Busy { .. }));
        ensure!(trial, 1, is_right, "with a time of day {offset} off another owner got {refused:?}");
        let early = waiter.poll(waiting, Duration::ZERO)?;
        ensure!(trial, 1, early.is_none(), "with a time of day {offset} off the waiter got {early:?}");
    }
    time.set("-3600s")?;
    holder.kill();
    let Some(said) = waiter.poll(waiting, ttl + ttl / 50 + patience)? else {
        return trial.wrong(8, "a waiter with another time of day is still waiting".into());
    };
    let new = token(&said)?;
    ensure!(trial, 3, new > old, "token {new} was granted after {old}");
    Ok(())
}
