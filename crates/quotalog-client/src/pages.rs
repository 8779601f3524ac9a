//! Lists, page by page or whole.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::request::Request;

/// A list, which is read page by page.
///
/// A walk meets every entry that existed throughout exactly once.
///
/// ```no_run
/// # async fn example(client: quotalog_client::Client) -> Result<(), quotalog_client::Error> {
/// let mut pages = client.quotas().pages();
/// while let Some(page) = pages.next().await? {
///     for quota in page {
///         println!("{} {}", quota.user_id, quota.usage);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Pages<T> {
    request: Request<Box<RawValue>>,
    /// The member of a page that holds its entries.
    member: &'static str,
    page_len: Option<usize>,
    place: Place,
    entry: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone)]
enum Place {
    Start,
    After(String),
    End,
}

impl<T> Pages<T> {
    pub(crate) fn new<A>(request: Request<A>, member: &'static str) -> Self {
        Self {
            request: request.answered_with(),
            member,
            page_len: None,
            place: Place::Start,
            entry: PhantomData,
        }
    }

    /// How many entries a page has, from 1 to 1000; the server's 100 if left out.
    #[must_use]
    pub fn page_len(mut self, len: usize) -> Self {
        self.page_len = Some(len);
        self
    }

    /// Goes on after the page at whose end [`Pages::cursor`] was this.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.place = Place::After(cursor.into());
        self
    }

    /// Where the next page begins; none before the first and after the last.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match &self.place {
            Place::After(cursor) => Some(cursor),
            Place::Start | Place::End => None,
        }
    }

    /// The same list, with its entries as the server wrote them.
    #[must_use]
    pub fn raw(self) -> Pages<Box<RawValue>> {
        Pages {
            request: self.request,
            member: self.member,
            page_len: self.page_len,
            place: self.place,
            entry: PhantomData,
        }
    }
}

impl<T: DeserializeOwned> Pages<T> {
    /// The next page; none after the last. After an error, the same page can be asked for again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, Error> {
        let mut request = self.request.clone();
        if let Some(len) = self.page_len {
            request = request.parameter("limit", &len.to_string());
        }
        match &self.place {
            Place::Start => {}
            Place::After(cursor) => request = request.parameter("cursor", cursor),
            Place::End => return Ok(None),
        }
        let answer = request.send().await?;
        let (entries, next) = self.read(&answer).map_err(|error| Error::Unexpected {
            status: 200,
            detail: format!("the answer cannot be read: {error}"),
        })?;
        self.place = next.map_or(Place::End, Place::After);
        Ok(Some(entries))
    }

    /// All entries that are left.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            all.extend(page);
        }
        Ok(all)
    }

    fn read(&self, answer: &RawValue) -> Result<(Vec<T>, Option<String>), serde_json::Error> {
        let members: BTreeMap<&str, &RawValue> = serde_json::from_str(answer.get())?;
        let member = |name: &str| members.get(name).map_or("null", |value| value.get());
        let entries = serde_json::from_str(member(self.member))?;
        Ok((entries, serde_json::from_str(member("next_cursor"))?))
    }
}
