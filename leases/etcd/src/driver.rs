//! The driver: it connects, and receives notifications.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, atomic::AtomicI64},
};

use futures_util::{FutureExt, future::select};
use keylatch_lease_remote::{BoxError, Driving};

use crate::{
    client::Client,
    error::{Trouble, unusable},
    place::Place,
    session::{Opened, Session},
};

/// Runs until all clones of the engine have been dropped, and the abandoned tenures have been released if possible.
pub(crate) async fn drive<C, F>(driving: Driving<Session>, place: Arc<Place>, mut dial: C)
where
    C: FnMut() -> F,
    F: Future<Output = Result<Client, BoxError>>,
{
    let shortest = Arc::new(AtomicI64::new(1));
    keylatch_lease_remote::drive(driving, |link| {
        let (link, place, shortest) = (Arc::clone(link), Arc::clone(&place), Arc::clone(&shortest));
        let dialled = dial();
        async move {
            let client = dialled.await.map_err(unusable)?;
            let opened = Session::open(client, Arc::clone(&place), &shortest).await;
            let Opened { session, ear, restarting } = opened.map_err(Trouble::into_unusable)?;
            let (ended, revoker, carried) = (session.ended(), session.revoker(), session.carried());
            let client = session.client.clone();
            let moves = async move {
                let carried = carried.map(|never| match never {});
                let heard = first(ear.listen(&place, link.watchers()), ended.wait());
                first(heard, first(carried, first(restarting.run(client), revoker.run()))).await
            };
            Ok((session, moves))
        }
    })
    .await;
}

/// Returns the output of the future that is ready first.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    select(pin!(one), pin!(other)).await.factor_first().0
}
