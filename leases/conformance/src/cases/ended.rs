//! Cases in which something other than the holder ends a tenure before its time.

use std::{future::pending, time::Duration};

use async_io::Timer;
use futures_lite::future::{yield_now, zip};
use keylatch_lease::{Held, Lost, Owner, Resource};

use crate::{
    ByHand, Failure, Fixture,
    fixture::Heard,
    trial::{Client, Trial, ensure, owners},
};

const SILENT: &str = "the engine does not tell who holds something: it finds out when it renews";

/// So long a connection stays broken.
const PAUSE: Duration = Duration::from_millis(20);

/// Somebody else ends the tenure that an owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    ReleaseAs,
    ReleaseAll,
    ReleaseToken,
    /// The same owner, who begins a tenure elsewhere.
    Hold,
    FreshToken,
}

/// Ends it. What it gives back keeps the resource leased.
async fn end<'a, F: Fixture>(
    trial: &Trial<'_, F>,
    there: &'a Client<F>,
    how: How,
    resource: &Resource,
    owner: &Owner,
) -> Result<Option<Held<'a, crate::observed::Observed<F::Engine>>>, Failure> {
    match how {
        How::ReleaseAs => there.release_as(resource, owner).await?,
        How::ReleaseAll => drop(there.release_all(owner).await?),
        How::ReleaseToken => {
            let status = there.status(resource).await?;
            if let Some(status) = status {
                there.release_token(resource, status.token()).await?;
            }
        }
        How::Hold => return Ok(Some(there.hold(resource, owner, trial.long()).await?)),
        How::FreshToken => drop(there.try_acquire(resource, owner, trial.long()).fresh_token().await?),
    }
    Ok(None)
}

/// The time within which a holder must know: long before it would renew.
fn limit<F: Fixture>(trial: &Trial<'_, F>, notice: Duration) -> Duration {
    notice + trial.caps.noise
}

pub(super) async fn who_is_released_by_another_learns_of_it<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let Some(notice) = trial.caps.notice else {
        trial.weaken(SILENT);
        return Ok(());
    };
    for how in [How::ReleaseAs, How::ReleaseAll, How::ReleaseToken, How::Hold, How::FreshToken] {
        let name = format!("{how:?}");
        // One that nobody polls, one that works, and one that is not concerned.
        let silent = here.hold(("silent", &*name), &ann, trial.long()).await?;
        let mut works = here.hold(("works", &*name), &ann, trial.long()).await?;
        let other = here.hold(("other", &*name), &bob, trial.long()).await?;
        let (resource, token) = (works.resource().clone(), works.token());
        let ended = async {
            let first = end(trial, &there, how, silent.resource(), &ann).await?;
            if how == How::ReleaseAll {
                return Ok(vec![first]);
            }
            Ok::<_, Failure>(vec![first, end(trial, &there, how, &resource, &ann).await?])
        };
        let what = format!("the loss, after {how:?} by another");
        let (lost, ended) = zip(trial.within(limit(trial, notice), &what, works.run(pending::<()>())), ended).await;
        let ended = ended?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        let is_right = matches!(lost, Err(Lost::Released | Lost::TakenOver | Lost::EngineForgot));
        ensure!(trial, 10, is_right, "after {how:?} by another the work ended with {lost:?}");
        ensure!(trial, 10, works.check().is_err(), "after {how:?} by another a lease that was lost was confirmed");
        trial.until(&what, || async { Ok(silent.check().is_err()) }).await?;
        let checked = other.check();
        ensure!(trial, 2, checked.is_ok(), "{how:?} of {ann} has ended what {bob} has: {checked:?}");
        for new in ended.iter().flatten() {
            let (checked, new) = (new.check(), new.token());
            ensure!(trial, 2, checked.is_ok(), "the tenure after it is lost, too: {checked:?}");
            ensure!(trial, 3, new > token || how != How::Hold, "token {new} after {token}");
        }
        // Nobody has renewed what was released, nor taken it along.
        drop((silent, works, ended));
        there.release_all(&ann).await?;
    }
    Ok(())
}

/// Notifications are lost while the connection is broken.
pub(super) async fn who_holds_outlives_its_connection<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let proxy = trial.proxy()?;
    let (here, there) = (trial.client_through(&proxy).await?, trial.client().await?);
    let [ann, bob] = owners();
    let Some(notice) = trial.caps.notice else {
        trial.weaken(SILENT);
        return Ok(());
    };
    for round in 0..4 {
        let silent = here.hold(("silent", ""), &ann, trial.long()).await?;
        let waits = here.hold(("waits", ""), &ann, trial.long()).await?;
        let stays = here.hold(("stays", ""), &bob, trial.long()).await?;
        let ended = async {
            yield_now().await; // it waits
            proxy.cut();
            for held in [&silent, &waits] {
                there.release_as(held.resource(), &ann).await?;
            }
            if round % 2 == 0 {
                Timer::after(PAUSE).await;
            }
            proxy.pass();
            trial.until("it is connected again", || async { Ok(here.status("form").await.is_ok()) }).await
        };
        let what = "the loss, of which nobody heard when it was told";
        let (lost, ended) = zip(trial.within(limit(trial, notice), what, waits.lost()), ended).await;
        ended?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        ensure!(trial, 10, lost != Lost::Expired, "what was released meanwhile was lost so: {lost:?}");
        trial.until(what, || async { Ok(silent.check().is_err()) }).await?;
        let checked = stays.check();
        ensure!(trial, 2, checked.is_ok(), "a lease was lost with a connection: {checked:?}");
        // Nobody has renewed it, and the server has it still.
        stays.release().await?;
    }
    Ok(())
}

pub(super) async fn what_is_taken_away_by_hand_is_lost<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let ways = trial.fixture.by_hand();
    if ways.is_empty() {
        return Err(Failure::does_not_apply("there is nothing that could be taken away by hand"));
    }
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    for ByHand { what, heard, notice } in ways {
        let silent = here.hold(("silent", what), &ann, trial.long()).await?;
        let works = here.hold(("works", what), &ann, trial.long()).await?;
        ensure!(trial, 2, silent.check().is_ok() && works.check().is_ok(), "it is not held before");
        let lost = works.lost();
        let taken = async {
            trial.take_away(what).await?;
            if heard == Heard::WhenAsked {
                for held in [&silent, &works] {
                    // It may get it, or be told to wait: the engine knows by then.
                    let _ = there.try_acquire(held.resource(), &bob, trial.long()).await;
                }
            }
            Ok::<_, Failure>(())
        };
        let wanted = format!("the loss, after this was taken away: {what}");
        let (lost, taken) = zip(trial.within(limit(trial, notice), &wanted, lost), taken).await;
        taken?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        ensure!(trial, 10, lost != Lost::Expired, "after {what}: {lost:?}");
        ensure!(trial, 10, works.check().is_err(), "after {what} a lease that was lost was confirmed");
        trial.until(&wanted, || async { Ok(silent.check().is_err()) }).await?;
        there.release_all(&bob).await?;
    }
    Ok(())
}
