//! Cases with many calls at once, and checks of all of them together.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use async_executor::LocalExecutor;
use async_io::Timer;
use futures_lite::{FutureExt, future::yield_now};
use keylatch_lease::{Fence, Grant, Owner, Resource, engine::Engine};

use crate::{
    Failure, Fixture, Proxy,
    history::{Clocks, Sure, check, no_overlap},
    trial::{Client, Random, Trial, ensure},
};

const KEYS: u64 = 4;
const LANES: usize = 8;
const STEPS: usize = 120;
const SEED: u64 = 29;

/// One of the load's tasks, which share the clients. It has an owner of its own, and an owner that other lanes use too.
struct Lane<'a, F: Fixture> {
    trial: &'a Trial<'a, F>,
    client: &'a Client<F>,
    random: Random,
    own: Owner,
    shared: Owner,
    /// The leases of its own owner on which it still relies, with the times during which each was certainly valid.
    grants: Vec<(Grant, Sure)>,
    /// Some of its earlier grants, to be used once more.
    stale: Vec<Grant>,
    /// The times during which the former leases of all lanes' own owners were certainly valid.
    past: &'a RefCell<Vec<Sure>>,
    is_real_time: bool,
}

impl<F: Fixture> Lane<'_, F> {
    /// Updates the times during which the leases were certainly valid. Those of valid grants are extended until now,
    /// and the others are moved to `past`.
    fn look(&mut self) {
        let now = self.client.engine().now();
        let (client, past) = (self.client, self.past);
        self.grants.retain_mut(|(grant, sure)| {
            if client.remaining(grant).is_none_or(|left| !left.is_zero()) {
                sure.until = sure.until.max(now);
                return true;
            }
            past.borrow_mut().push(sure.clone());
            false
        });
    }

    /// Stops relying on the lease of this resource, or on all leases.
    fn let_go(&mut self, resource: Option<&Resource>) {
        self.look();
        let past = self.past;
        self.grants.retain(|(grant, sure)| {
            let stays = resource.is_some_and(|resource| resource != grant.resource());
            if !stays {
                past.borrow_mut().push(sure.clone());
            }
            stays
        });
    }

    fn keep(&mut self, grant: Grant) {
        let now = self.client.engine().now();
        if self.stale.len() < 8 {
            self.stale.push(grant.clone());
        }
        if *grant.owner() != self.own {
            return;
        }
        let known = self.grants.iter_mut().find(|(known, _)| known.resource() == grant.resource());
        match known {
            Some((known, _)) if known.token() == grant.token() => *known = grant,
            _ => {
                self.let_go(Some(&grant.resource().clone()));
                let (resource, token) = (grant.resource().clone(), grant.token());
                self.grants.push((grant, Sure { resource, token, from: now, until: now }));
            }
        }
    }

    /// Makes one random call. A failure of the call does not matter, because all requests and answers are recorded.
    async fn step(&mut self) {
        let ttl = match self.trial.caps.is_ttl_fixed {
            true => self.trial.ttl(),
            false => self.trial.ttl() * (4 + u32::try_from(self.random.next(5)).unwrap_or(0)) / 4,
        };
        let resource = Resource::new("load", self.random.next(KEYS).to_string());
        let owner = if self.random.next(3) == 0 { self.shared.clone() } else { self.own.clone() };
        let client = self.client;
        self.look();
        match self.random.next(100) {
            0..30 => {
                if let Ok(grant) = client.try_acquire(&resource, &owner, ttl).await {
                    self.keep(grant);
                }
            }
            30..36 => self.begin_anew(&resource, &owner, ttl).await,
            36..52 => self.wait(&resource, &owner, ttl).await,
            52..56 => self.give_up(&resource, ttl).await,
            56..70 if !self.grants.is_empty() => {
                if let Ok(grant) = client.renew(&self.one_of_its_own()).await {
                    self.keep(grant);
                }
            }
            70..84 if !self.grants.is_empty() => {
                let grant = self.one_of_its_own();
                self.let_go(Some(grant.resource()));
                drop(client.release(&grant).await);
            }
            84..86 => {
                if owner == self.own {
                    self.let_go(None);
                }
                drop(client.release_all(&owner).await);
            }
            86..90 => drop(client.status(&resource).await),
            90..92 => drop(client.owned_by(&owner).await),
            92..94 => drop(client.release_as(&resource, &self.shared).await),
            94..97 if !self.stale.is_empty() => self.use_a_stale_grant().await,
            _ => self.pause().await,
        }
        yield_now().await;
    }

    async fn begin_anew(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) {
        if *owner == self.own {
            self.let_go(Some(resource));
        }
        if let Ok(grant) = self.client.try_acquire(resource, owner, ttl).fresh_token().await {
            self.keep(grant);
        }
    }

    async fn wait(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) {
        let longest = Duration::from_millis(1 + self.random.next(30));
        let limit = async {
            Timer::after(longest).await;
        };
        if let Ok(grant) = self.client.acquire(resource, owner, ttl).until(limit).await {
            self.keep(grant);
        }
    }

    /// Drops a request at a random moment, when the engine may or may not have carried it out.
    async fn give_up(&mut self, resource: &Resource, ttl: Duration) {
        let longest = Duration::from_micros(self.random.next(500));
        let acquire = async { self.client.try_acquire(resource, &self.shared, ttl).await.ok() };
        let limit = async {
            Timer::after(longest).await;
            None
        };
        drop(acquire.or(limit).await);
    }

    /// Returns one of the lane's valid grants. There must be one.
    fn one_of_its_own(&mut self) -> Grant {
        let at = usize::try_from(self.random.next(self.grants.len() as u64)).unwrap_or(0);
        self.grants[at].0.clone()
    }

    /// Uses an earlier grant, if possible one of a resource that the same owner holds again, so that only the token
    /// tells the two tenures apart.
    async fn use_a_stale_grant(&mut self) {
        let is_replaced = |stale: &Grant| {
            let same =
                |(grant, _): &(Grant, Sure)| (grant.resource(), grant.owner()) == (stale.resource(), stale.owner());
            self.grants.iter().any(|held| same(held) && held.0.token() != stale.token())
        };
        let any = usize::try_from(self.random.next(self.stale.len() as u64)).unwrap_or(0);
        let at = self.stale.iter().position(is_replaced).unwrap_or(any);
        let grant = self.stale.swap_remove(at);
        if self.random.next(2) == 0 {
            drop(self.client.renew(&grant).await);
        } else {
            self.let_go(Some(grant.resource())); // the grant may still be valid
            drop(self.client.release(&grant).await);
        }
    }

    async fn pause(&mut self) {
        if self.is_real_time {
            Timer::after(Duration::from_millis(self.random.next(20))).await;
        } else {
            let part = u32::try_from(self.random.next(8)).unwrap_or(0);
            let _ = self.trial.pass(self.trial.ttl() * part / 16).await;
        }
    }

    /// Makes many calls. If the engine's time is real, continues until some leases can have expired, with up to three
    /// times as many calls.
    async fn run(mut self) {
        let start = Instant::now();
        let least = if self.is_real_time { 3 * self.trial.ttl() } else { Duration::ZERO };
        let mut steps = 0;
        while steps < STEPS || start.elapsed() < least && steps < 3 * STEPS {
            self.step().await;
            steps += 1;
            if steps % 40 == 0 && self.is_real_time {
                // Pause for half the length of the shortest lease, so that some leases expire.
                self.look();
                Timer::after(self.trial.ttl() / 2).await;
            }
        }
        self.let_go(None);
    }
}

/// Makes a proxy cut, hold or delay connections, or swallow answers, again and again. Without a proxy, does nothing.
#[expect(clippy::infinite_loop, reason = "it is dropped when the load ends")]
async fn inflict_faults(proxy: Option<&Proxy>) {
    let Some(proxy) = proxy else { return std::future::pending().await };
    let mut random = Random(SEED);
    loop {
        Timer::after(Duration::from_millis(50 + random.next(100))).await;
        match random.next(4) {
            0 => proxy.cut(),
            1 => proxy.hold(),
            2 => proxy.swallow_answers(),
            _ => proxy.delay(Duration::from_millis(2)),
        }
        Timer::after(Duration::from_millis(5 + random.next(20))).await;
        proxy.pass();
    }
}

pub(super) async fn a_random_load_is_linearizable<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    let recorder = trial.record();
    let proxy = trial.proxy().ok();
    let mut clients = vec![trial.client().await?, trial.client().await?];
    if let Some(proxy) = &proxy {
        clients.push(trial.client_through(proxy).await?);
    }
    let is_real_time = trial.is_real_time().await?;
    let past = RefCell::new(Vec::new());
    let executor = LocalExecutor::new();
    let lanes = (0..LANES).map(|at| {
        let lane = Lane {
            trial,
            client: &clients[at % clients.len()],
            random: Random(SEED + at as u64),
            own: Owner::named(format!("lane {at}")),
            shared: Owner::named(format!("shared {}", at % 2)),
            grants: Vec::new(),
            stale: Vec::new(),
            past: &past,
            is_real_time,
        };
        executor.spawn(lane.run())
    });
    let lanes: Vec<_> = lanes.collect();
    let all = async {
        for lane in lanes {
            lane.await;
        }
    };
    let limit = 10 * trial.ttl() + 4 * trial.patience();
    trial.within(limit, "the load", executor.run(all.or(inflict_faults(proxy.as_ref())))).await?;
    if let Some(proxy) = &proxy {
        proxy.pass();
    }
    drop(executor);
    let events = recorder.take();
    let clocks = match is_real_time || !F::Engine::LOCAL {
        true => Clocks { percent: 1, delta: trial.caps.delta },
        false => Clocks { percent: 0, delta: Duration::ZERO },
    };
    let known = past.into_inner();
    ensure!(trial, 1, !known.is_empty() && events.len() > LANES * STEPS / 2, "hardly any call succeeded");
    if let Err(wrong) = no_overlap(&known) {
        trial.wrong(2, wrong)?;
    }
    if let Err(wrong) = check(&events, clocks) {
        trial.wrong(1, wrong)?;
    }
    Ok(())
}

/// A set in a store, which is read and written as a whole. The store may have a fence that checks tokens.
struct Set {
    resource: Resource,
    fence: Option<Fence>,
    stored: RefCell<BTreeSet<u32>>,
    /// The elements whose addition was confirmed to a caller.
    promised: RefCell<BTreeSet<u32>>,
}

impl Set {
    fn new(name: &str, is_fenced: bool) -> Self {
        Set {
            resource: Resource::from(name),
            fence: is_fenced.then(Fence::new),
            stored: RefCell::default(),
            promised: RefCell::default(),
        }
    }

    fn read(&self, grant: &Grant) -> Option<BTreeSet<u32>> {
        let admits = self.fence.as_ref().is_none_or(|fence| fence.admit(&self.resource, grant.token()).is_ok());
        admits.then(|| self.stored.borrow().clone())
    }

    /// Writes the set with a new element, and returns whether the fence admitted it.
    fn write(&self, grant: &Grant, mut read: BTreeSet<u32>, new: u32) -> bool {
        let admits = self.fence.as_ref().is_none_or(|fence| fence.admit(&self.resource, grant.token()).is_ok());
        if admits {
            read.insert(new);
            *self.stored.borrow_mut() = read;
            self.promised.borrow_mut().insert(new);
        }
        admits
    }

    fn lost(&self) -> usize {
        self.promised.borrow().difference(&self.stored.borrow()).count()
    }

    /// Adds an element under a lease, with a pause between reading and writing. Tries again if the fence refuses.
    async fn add<F: Fixture>(
        &self,
        trial: &Trial<'_, F>,
        client: &Client<F>,
        owner: &Owner,
        new: u32,
        thinks: u32,
    ) -> Result<(), Failure> {
        loop {
            let grant = client.acquire(&self.resource, owner, trial.long()).await?;
            let is_added = match self.read(&grant) {
                Some(read) => {
                    for _ in 0..thinks {
                        yield_now().await;
                    }
                    self.write(&grant, read, new)
                }
                None => false,
            };
            let _ = client.release(&grant).await; // the lease may have expired
            if is_added {
                return Ok(());
            }
        }
    }
}

pub(super) async fn a_fenced_set_loses_no_element<F: Fixture>(trial: &Trial<'_, F>) -> Result<(), Failure> {
    const ROUNDS: u32 = 2;
    const CROWD: u32 = 16;
    let (here, there) = (trial.client().await?, trial.client().await?);
    let sets = [Set::new("behind a fence", true), Set::new("behind none", false)];
    let (slow, fast) = (Owner::named("slow"), Owner::named("fast"));
    for round in 0..ROUNDS {
        let base = round * 1000;
        // One writer of each set sleeps past the end of its lease, between reading and writing.
        let mut sleepers = Vec::new();
        for set in &sets {
            let grant = here.acquire(&set.resource, &slow, trial.ttl()).await?;
            sleepers.push((set, set.read(&grant), grant));
        }
        trial.outlive(trial.ttl()).await?;
        for (set, read, grant) in sleepers {
            set.add(trial, &there, &fast, base, 1).await?;
            let is_late = read.is_some_and(|read| set.write(&grant, read, base + 1));
            ensure!(trial, 3, is_late != set.fence.is_some(), "a late write to {}: admitted {is_late}", set.resource);
            if !is_late {
                set.add(trial, &here, &slow, base + 1, 1).await?;
            }
        }
        // There are many other writers, and they write in time.
        let executor = LocalExecutor::new();
        let crowd = (0..CROWD).map(|at| {
            let set = &sets[at as usize % 2];
            let client: &Client<F> = if at % 3 == 0 { &here } else { &there };
            executor.spawn(async move {
                set.add(trial, client, &Owner::named(format!("owner {at}")), base + 2 + at, at).await
            })
        });
        let crowd: Vec<_> = crowd.collect();
        let served = async {
            for one in crowd {
                one.await?;
            }
            Ok::<_, Failure>(())
        };
        trial.within(2 * trial.patience(), "the writers of the set", executor.run(served)).await??;
    }
    let [fenced, open] = &sets;
    ensure!(trial, 3, fenced.lost() == 0, "{} elements were lost behind a fence", fenced.lost());
    let all = ROUNDS * (2 + CROWD / 2);
    ensure!(
        trial,
        3,
        fenced.stored.borrow().len() == all as usize,
        "there are {} elements",
        fenced.stored.borrow().len()
    );
    if open.lost() == 0 {
        return Err(Failure::new("nothing was lost without a fence, so the case shows nothing"));
    }
    Ok(())
}
