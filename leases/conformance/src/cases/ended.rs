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

const SILENT: &str = "the engine does not notify holders: a holder learns of the end when it renews";

/// The time for which a connection stays broken in every other round.
const PAUSE: Duration = Duration::from_millis(20);

/// The way in which another call ends an owner's tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    ReleaseAs,
    ReleaseAll,
    ReleaseToken,
    /// The same owner begins a tenure elsewhere.
    Hold,
    FreshToken,
}

/// Ends the tenure. Returns the new tenure's `Held`, if one has begun and must be kept.
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

/// Returns the time within which a holder must learn of the end, which is long before it would renew.
fn limit<F: Fixture>(trial: &Trial<'_, F>, notice: Duration) -> Duration {
    notice + trial.caps.noise
}

pub(super) async fn a_holder_learns_that_another_client_ended_its_lease<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    let Some(notice) = trial.caps.notice else {
        trial.weaken(SILENT);
        return Ok(());
    };
    for how in [How::ReleaseAs, How::ReleaseAll, How::ReleaseToken, How::Hold, How::FreshToken] {
        let name = format!("{how:?}");
        // One lease is not polled, one runs some work, and one belongs to another owner.
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
        let what = format!("the loss, after {how:?} by another process");
        let (lost, ended) = zip(trial.within(limit(trial, notice), &what, works.run(pending::<()>())), ended).await;
        let ended = ended?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        let is_right = matches!(lost, Err(Lost::Released | Lost::TakenOver | Lost::EngineForgot));
        ensure!(trial, 10, is_right, "after {how:?} by another process the work ended with {lost:?}");
        ensure!(trial, 10, works.check().is_err(), "after {how:?} by another process a lost lease was confirmed");
        trial.until(&what, || async { Ok(silent.check().is_err()) }).await?;
        let checked = other.check();
        ensure!(trial, 2, checked.is_ok(), "{how:?} of {ann} has ended the lease of {bob}: {checked:?}");
        for new in ended.iter().flatten() {
            let (checked, new) = (new.check(), new.token());
            ensure!(trial, 2, checked.is_ok(), "the new tenure is lost too: {checked:?}");
            ensure!(trial, 3, new > token || how != How::Hold, "token {new} was granted after {token}");
        }
        // The lost leases are dropped, and the new tenures ended, before the next round.
        drop((silent, works, ended));
        there.release_all(&ann).await?;
    }
    Ok(())
}

/// The holder must learn of the release although its notification was lost with the connection.
pub(super) async fn a_holder_learns_of_a_release_during_a_broken_connection<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
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
            yield_now().await; // the holder begins to wait for the loss
            proxy.cut();
            for held in [&silent, &waits] {
                there.release_as(held.resource(), &ann).await?;
            }
            if round % 2 == 0 {
                Timer::after(PAUSE).await;
            }
            proxy.pass();
            trial.until("the engine is connected again", || async { Ok(here.status("form").await.is_ok()) }).await
        };
        let what = "the loss, whose notification did not arrive";
        let (lost, ended) = zip(trial.within(limit(trial, notice), what, waits.lost()), ended).await;
        ended?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        ensure!(trial, 10, lost != Lost::Expired, "a released lease was lost with {lost:?}");
        trial.until(what, || async { Ok(silent.check().is_err()) }).await?;
        let checked = stays.check();
        ensure!(trial, 2, checked.is_ok(), "a lease was lost with its connection: {checked:?}");
        // A successful release shows that the server still has the lease. No renewal is needed for that.
        stays.release().await?;
    }
    Ok(())
}

pub(super) async fn a_holder_learns_that_its_lease_was_deleted_by_hand<F: Fixture>(
    trial: &Trial<'_, F>,
) -> Result<(), Failure> {
    let ways = trial.fixture.by_hand();
    if ways.is_empty() {
        return Err(Failure::does_not_apply("there is no way to take leases away by hand"));
    }
    let (here, there) = (trial.client().await?, trial.client().await?);
    let [ann, bob] = owners();
    for ByHand { what, heard, notice } in ways {
        let silent = here.hold(("silent", what), &ann, trial.long()).await?;
        let works = here.hold(("works", what), &ann, trial.long()).await?;
        ensure!(trial, 2, silent.check().is_ok() && works.check().is_ok(), "a lease is lost before it was taken away");
        let lost = works.lost();
        let taken = async {
            trial.take_away(what).await?;
            if heard == Heard::WhenAsked {
                for held in [&silent, &works] {
                    // The other owner may get the resource, or be refused: the engine notices the deletion either way.
                    let _ = there.try_acquire(held.resource(), &bob, trial.long()).await;
                }
            }
            Ok::<_, Failure>(())
        };
        let wanted = format!("the loss, after {what} were taken away");
        let (lost, taken) = zip(trial.within(limit(trial, notice), &wanted, lost), taken).await;
        taken?;
        let lost = match lost {
            Ok(lost) => lost,
            Err(failure) => return trial.wrong(10, failure.to_string()),
        };
        ensure!(trial, 10, lost != Lost::Expired, "after {what}: {lost:?}");
        ensure!(trial, 10, works.check().is_err(), "after {what} a lost lease was confirmed");
        trial.until(&wanted, || async { Ok(silent.check().is_err()) }).await?;
        there.release_all(&bob).await?;
    }
    Ok(())
}
