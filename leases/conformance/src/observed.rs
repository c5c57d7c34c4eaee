//! An engine that counts the requests to another one, and records most of them with their answers.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use keylatch_lease::{
    Owner, Resource, Token,
    engine::{Answer, Ask, Engine, Fail, Gone, Left, Listing, Notice, Owned, Part, Record, Renewal},
};

use crate::history::{Asked, Event, Said};

/// An engine that passes every request on, and counts it. If there is a recorder, it also records the requests that an
/// [`Asked`] can describe.
#[derive(Debug)]
pub(crate) struct Observed<E> {
    engine: E,
    requests: AtomicU64,
    /// The number of acquires under way for each resource, and the greatest such number since the last reading.
    asking: Mutex<HashMap<Resource, (u64, u64)>>,
    recorder: Option<Recorder>,
}

/// A record to which many clients write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Event>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn push(&self, event: Event) {
        lock(&self.0).push(event);
    }
}

impl<E: Engine> Observed<E> {
    pub(crate) fn new(engine: E, recorder: Option<Recorder>) -> Self {
        Observed { engine, requests: AtomicU64::new(0), asking: Mutex::default(), recorder }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(SeqCst)
    }

    /// Returns the greatest number of acquires of this resource that were under way at the same time since the last
    /// call.
    pub(crate) fn most_asking(&self, resource: &Resource) -> u64 {
        let mut asking = lock(&self.asking);
        asking.get_mut(resource).map_or(0, |(now, most)| std::mem::replace(most, *now))
    }

    /// Counts a request. If there is a recorder, records it: with its answer, or as unanswered, if the answer was lost
    /// or the future is dropped first. A request that was not carried out is not recorded.
    async fn noted<T>(
        &self,
        asked: impl Fn() -> Vec<Asked>,
        answer: impl Future<Output = Result<T, Fail<E::Error>>>,
        said: impl Fn(&T) -> Vec<Said>,
    ) -> Result<T, Fail<E::Error>> {
        self.requests.fetch_add(1, SeqCst);
        let Some(recorder) = &self.recorder else { return answer.await };
        let mut note = Note { recorder, asked: asked(), start: self.engine.now() };
        let answer = answer.await;
        let (start, end) = (note.start, self.engine.now());
        let asked = std::mem::take(&mut note.asked);
        let said = match &answer {
            Ok(answer) => said(answer),
            Err(Fail::NotDone(_)) => Vec::new(),
            Err(Fail::Unknown(_) | Fail::Undone(_)) => asked.iter().map(|_| Said::Nothing).collect(),
        };
        for (asked, said) in asked.into_iter().zip(said) {
            let end = (said != Said::Nothing).then_some(end);
            recorder.push(Event { asked, said, start, end });
        }
        answer
    }
}

/// A request that has not been answered. When this is dropped, the request is recorded as unanswered.
struct Note<'a> {
    recorder: &'a Recorder,
    asked: Vec<Asked>,
    start: Duration,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        for asked in self.asked.drain(..) {
            self.recorder.push(Event { asked, said: Said::Nothing, start: self.start, end: None });
        }
    }
}

/// An acquire that is under way.
struct Asking<'a>(&'a Mutex<HashMap<Resource, (u64, u64)>>, &'a Resource);

impl<'a> Asking<'a> {
    fn begin(all: &'a Mutex<HashMap<Resource, (u64, u64)>>, resource: &'a Resource) -> Self {
        let mut asking = lock(all);
        let (now, most) = asking.entry(resource.clone()).or_default();
        *now += 1;
        *most = (*most).max(*now);
        Asking(all, resource)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some((now, _)) = lock(self.0).get_mut(self.1) {
            *now -= 1;
        }
    }
}

impl<E: Engine> Engine for Observed<E> {
    type Error = E::Error;
    const LOCAL: bool = E::LOCAL;

    fn now(&self) -> Duration {
        self.engine.now()
    }

    fn is_real_time(&self) -> bool {
        self.engine.is_real_time()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Result<Answer, Fail<E::Error>> {
        let _asking = Asking::begin(&self.asking, ask.resource);
        let Ask { resource, owner, want, term, .. } = ask;
        let asked = || {
            let (resource, owner) = (resource.clone(), owner.clone());
            vec![Asked::Acquire { resource, owner, want, term }]
        };
        self.noted(asked, self.engine.acquire(ask), |answer| vec![Said::Acquired(answer.clone())]).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Result<(), Fail<E::Error>> {
        let asked: Vec<_> = batch
            .iter()
            .map(|Renewal { resource, owner, token, term, .. }| Asked::Renew {
                resource: (*resource).clone(),
                owner: (*owner).clone(),
                token: *token,
                term: *term,
            })
            .collect();
        let renewed = async {
            self.engine.renew(batch, at).await?;
            Ok(batch.iter().map(|renewal| renewal.left).collect())
        };
        let said = |left: &Vec<Left>| left.iter().map(|left| Said::Renewed(*left)).collect();
        self.noted(|| asked.clone(), renewed, said).await.map(drop)
    }

    async fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        token: Option<Token>,
        at: Duration,
    ) -> Result<Gone, Fail<E::Error>> {
        let asked = || vec![Asked::Release { resource: resource.clone(), owner: owner.clone(), token }];
        let released = self.engine.release(resource, owner, token, at);
        self.noted(asked, released, |gone| vec![Said::Released(gone.clone())]).await
    }

    async fn release_token(&self, resource: &Resource, token: Token, at: Duration) -> Result<Gone, Fail<E::Error>> {
        self.noted(Vec::new, self.engine.release_token(resource, token, at), |_| Vec::new()).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Result<Vec<Resource>, Fail<E::Error>> {
        let asked = || vec![Asked::ReleaseAll { owner: owner.clone() }];
        self.noted(asked, self.engine.release_all(owner, at), |gone| vec![Said::ReleasedAll(gone.clone())]).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Result<Option<Record>, Fail<E::Error>> {
        let asked = || vec![Asked::Look { resource: resource.clone() }];
        self.noted(asked, self.engine.look(resource, at), |record| vec![Said::Looked(record.clone())]).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Result<Vec<Owned>, Fail<E::Error>> {
        let asked = || vec![Asked::OwnedBy { owner: owner.clone() }];
        let said = |owned: &Vec<Owned>| {
            vec![Said::Owned(owned.iter().map(|owned| (owned.resource.clone(), owned.record.token)).collect())]
        };
        self.noted(asked, self.engine.owned_by(owner, at), said).await
    }

    async fn list(&self, part: Part<'_>) -> Result<Listing, Fail<E::Error>> {
        self.noted(Vec::new, self.engine.list(part), |_| Vec::new()).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Result<usize, Fail<E::Error>> {
        self.noted(Vec::new, self.engine.sweep(limit, at), |_| Vec::new()).await
    }

    fn watch(&self, resource: &Resource) -> impl Future<Output = ()> + Send {
        self.engine.watch(resource)
    }

    fn subscribe(&self, resource: &Resource, notice: &Arc<Notice>) -> bool {
        self.engine.subscribe(resource, notice)
    }

    fn unsubscribe(&self, resource: &Resource, notice: &Arc<Notice>) {
        self.engine.unsubscribe(resource, notice);
    }

    fn fallback(&self) -> Option<Duration> {
        self.engine.fallback()
    }

    fn tidy(&self) {
        self.engine.tidy();
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        if let Some(recorder) = &self.recorder {
            let asked = Asked::Release { resource: resource.clone(), owner: owner.clone(), token: Some(token) };
            recorder.push(Event { asked, said: Said::Nothing, start: self.engine.now(), end: None });
        }
        self.engine.abandon(resource, owner, token);
    }
}
