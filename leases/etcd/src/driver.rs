//! The driver: it connects, and receives notifications.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, atomic::AtomicI64},
};

use futures_util::future::{Either, select};
use keylatch_lease_remote::{BoxError, Driving};

use crate::{
    client::{Client, ClientError},
    error::{Error, Trouble, unusable},
    leftovers::Leftovers,
    place::Place,
    session::Session,
};

/// Runs until all clones of the engine have been dropped.
pub(crate) async fn drive<C, F>(driving: Driving<Session>, place: Arc<Place>, leftovers: Arc<Leftovers>, mut dial: C)
where
    C: FnMut() -> F,
    F: Future<Output = Result<Client, BoxError>>,
{
    let shortest = Arc::new(AtomicI64::new(1));
    keylatch_lease_remote::drive(driving, |link| {
        let shortest = Arc::clone(&shortest);
        let (link, place, leftovers, dialled) = (Arc::clone(link), Arc::clone(&place), Arc::clone(&leftovers), dial());
        async move {
            let client = dialled.await.map_err(unusable)?;
            let opened = Session::open(&client, Arc::clone(&place), Arc::clone(&leftovers), &shortest).await;
            let (session, ear) = opened.map_err(|trouble| match trouble {
                Trouble::Broken(Error::Closed { source }) => unusable_source(source),
                Trouble::Broken(error) | Trouble::Refused(error) | Trouble::Full(error) => error,
                Trouble::NoLease => Error::Unconnected { source: None },
            })?;
            let (ended, revoker) = (session.ended(), session.revoker());
            let moves = async move {
                let heard = pin!(ear.listen(&place, link.watchers()));
                let (revoked, ended) = (pin!(revoker.run(&leftovers)), pin!(ended.wait()));
                match select(select(heard, ended), revoked).await {
                    Either::Left((error, _)) => error.factor_first().0,
                    Either::Right((error, _)) => error,
                }
            };
            Ok((session, moves))
        }
    })
    .await;
}

fn unusable_source(source: Arc<ClientError>) -> Error {
    Error::Unconnected { source: Some(source) }
}
