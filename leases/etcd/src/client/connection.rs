use std::{fmt, sync::Arc};

use futures_util::stream::{self, Stream, StreamExt};
use http::uri::PathAndQuery;
use tokio::sync::{RwLock, oneshot};
use tonic::{
    client::Grpc,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use crate::client::{
    error::ClientError,
    keys::Keys,
    messages::{
        AuthenticateRequest, DeleteRangeRequest, KeyValue, LeaseKeepAliveRequest, PutRequest, RangeRequest,
        RangeResponse, StatusRequest, WatchCreateRequest, WatchRequest, WatchResponse,
    },
    options::ConnectOptions,
    request::Request,
    txn::{Txn, TxnAnswer},
};

type Token = MetadataValue<Ascii>;

/// The size limit of an answer, large enough to list all leases of an owner that has very many.
const LARGEST: usize = 256 << 20;

/// A client of etcd.
///
/// Clones share the connection, and all calls run side by side on it. A client needs a tokio runtime.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), keylatch_lease_etcd::client::ClientError> {
/// use keylatch_lease_etcd::{Client, ConnectOptions};
///
/// let options = ConnectOptions::new().with_user("shop", "secret");
/// let client = Client::connect(["http://etcd.example:2379"], Some(options)).await?;
/// client.put("account/7/paid", "yes").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    require_leader: bool,
    login: Option<Arc<Login>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A user, and the token that etcd gave in exchange for the password.
struct Login {
    user: AuthenticateRequest,
    token: RwLock<Token>,
}

impl Client {
    /// Prepares a connection to these endpoints, and logs in if the options have a user. Calls are spread over the
    /// endpoints.
    ///
    /// An endpoint is a URL, or a host and a port. Without a user nothing is sent yet: the first call connects.
    ///
    /// # Errors
    /// Fails if there is no endpoint, if one of them is not a URL, if one begins with `http://` although there are TLS
    /// options, or with `https://` although the feature `tls` is off, or if the login fails.
    pub async fn connect<E: AsRef<str>>(
        endpoints: impl IntoIterator<Item = E>,
        options: Option<ConnectOptions>,
    ) -> Result<Self, ClientError> {
        let options = options.unwrap_or_default();
        let endpoints = endpoints.into_iter().map(|url| options.endpoint(url.as_ref()));
        let endpoints: Vec<_> = endpoints.collect::<Result<_, _>>()?;
        let channel = match &endpoints[..] {
            [] => return Err(ClientError::options("at least one endpoint is needed")),
            [one] => one.connect_lazy(),
            _ => Channel::balance_list(endpoints.into_iter()),
        };
        let mut client = Client { channel, require_leader: options.require_leader, login: None };
        if let Some((name, password)) = options.user {
            let user = AuthenticateRequest { name, password };
            let token = RwLock::new(client.authenticate(&user).await?);
            client.login = Some(Arc::new(Login { user, token }));
        }
        Ok(client)
    }

    /// Reads keys and their values, in the order of the keys.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call).
    pub async fn get(&self, keys: impl Into<Keys>) -> Result<Vec<KeyValue>, ClientError> {
        Ok(self.range(keys).await?.kvs)
    }

    pub(crate) async fn range(&self, keys: impl Into<Keys>) -> Result<RangeResponse, ClientError> {
        self.range_of(keys, 0).await
    }

    /// Returns the first `limit` of the keys, or all of them if `limit` is 0.
    pub(crate) async fn range_of(&self, keys: impl Into<Keys>, limit: i64) -> Result<RangeResponse, ClientError> {
        let Keys { start: key, end: range_end } = keys.into();
        self.call(RangeRequest { key, range_end, limit, keys_only: false }).await
    }

    /// Writes a key, and returns the cluster's revision after that.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call).
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<i64, ClientError> {
        let answer = self.call(PutRequest { key: key.into(), value: value.into(), lease: 0 }).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Deletes keys, and returns the number of deleted ones.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call).
    pub async fn delete(&self, keys: impl Into<Keys>) -> Result<i64, ClientError> {
        let Keys { start: key, end: range_end } = keys.into();
        Ok(self.call(DeleteRangeRequest { key, range_end, prev_kv: false }).await?.deleted)
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call). A condition that does not hold is not an error.
    ///
    /// # Examples
    /// See [`Etcd::guard`](crate::Etcd::guard).
    pub async fn txn(&self, txn: Txn) -> Result<TxnAnswer, ClientError> {
        Ok(self.call(txn.0).await?.into())
    }

    /// Returns the version of etcd on the node.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call).
    pub async fn version(&self) -> Result<String, ClientError> {
        Ok(self.call(StatusRequest {}).await?.version)
    }

    /// Restarts the time of an etcd lease, and returns whether it still existed.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<bool, ClientError> {
        let mut answers = self.stream(stream::iter([LeaseKeepAliveRequest { id }])).await?;
        match answers.next().await? {
            Some(answer) => Ok(answer.ttl > 0),
            None => Err(ClientError::answer("etcd ended the stream of a keep-alive without an answer")),
        }
    }

    /// Starts a watch, which goes on until the answers are dropped.
    pub(crate) async fn watch(&self, create: WatchCreateRequest) -> Result<Answers<WatchResponse>, ClientError> {
        // The stream of requests stays open: its end might end the watch.
        let requests = stream::iter([WatchRequest { create: Some(create) }]).chain(stream::pending());
        let mut answers = self.stream(requests).await?;
        match answers.next().await? {
            Some(created) if !created.canceled => Ok(answers),
            Some(refused) => Err(ClientError::watch(refused.cancel_reason)),
            None => Err(ClientError::answer("etcd ended the stream of a watch without an answer")),
        }
    }

    /// Makes a call with one request and one answer, of up to 256 MiB. If the login's token is no longer valid, the
    /// client logs in again.
    ///
    /// # Errors
    /// With a [code](ClientError::code), if etcd answered with an error, most often because it refused the request.
    /// Without one, if the connection failed: the request may have been carried out. If the client cannot log in again,
    /// the token's refusal is the error.
    pub async fn call<Q: Request>(&self, request: Q) -> Result<Q::Answer, ClientError> {
        let Some(login) = &self.login else { return self.call_with(request, None).await };
        let token = login.token.read().await.clone();
        match self.call_with(request.clone(), Some(&token)).await {
            Err(error) if error.is_stale_token() => match self.log_in_again(login, &token).await {
                Ok(token) => self.call_with(request, Some(&token)).await,
                // The password has probably changed, so another client is needed: the caller gets the token's refusal.
                Err(_) => Err(error),
            },
            answer => answer,
        }
    }

    async fn call_with<Q: Request>(&self, request: Q, token: Option<&Token>) -> Result<Q::Answer, ClientError> {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, Q::Answer>::default();
        let path = PathAndQuery::from_static(Q::METHOD);
        Ok(grpc.unary(self.request(request, token), path, codec).await?.into_inner())
    }

    /// Makes a call whose requests and answers are streams. It goes on until the answers end or are dropped.
    ///
    /// # Errors
    /// Fails like [`call`](Client::call), but the client does not log in again.
    pub async fn stream<Q: Request>(
        &self,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Answers<Q::Answer>, ClientError> {
        let mut token = None;
        if let Some(login) = &self.login {
            token = Some(login.token.read().await.clone());
        }
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, Q::Answer>::default();
        let path = PathAndQuery::from_static(Q::METHOD);
        // A stream of requests without an end would keep the connection open.
        let (open, dropped) = oneshot::channel();
        let request = self.request(requests.take_until(dropped), token.as_ref());
        let answers = grpc.streaming(request, path, codec).await?.into_inner();
        Ok(Answers { answers, _open: open })
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, ClientError> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST);
        grpc.ready().await?;
        Ok(grpc)
    }

    fn request<T>(&self, message: T, token: Option<&Token>) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if self.require_leader {
            request.metadata_mut().insert("hasleader", Token::from_static("true"));
        }
        if let Some(token) = token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn authenticate(&self, user: &AuthenticateRequest) -> Result<Token, ClientError> {
        let answer = self.call_with(user.clone(), None).await?;
        let mut token = Token::try_from(answer.token)
            .map_err(|_| ClientError::answer("etcd sent a token that is not valid in a header"))?;
        token.set_sensitive(true);
        Ok(token)
    }

    /// Replaces a token that is no longer valid, unless another call has already replaced it.
    async fn log_in_again(&self, login: &Login, stale: &Token) -> Result<Token, ClientError> {
        let mut token = login.token.write().await;
        if *token == *stale {
            *token = self.authenticate(&login.user).await?;
        }
        Ok(token.clone())
    }
}

/// The answers to a [stream](Client::stream) of requests.
#[derive(Debug)]
pub struct Answers<A> {
    answers: tonic::Streaming<A>,
    /// Ends the stream of requests when it is dropped.
    _open: oneshot::Sender<()>,
}

impl<A> Answers<A> {
    /// Waits for the next answer. Returns `None` when the server has ended the stream.
    ///
    /// # Errors
    /// Fails like [`Client::call`].
    ///
    /// # Cancel safety
    /// No answer is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Option<A>, ClientError> {
        Ok(self.answers.message().await?)
    }
}
