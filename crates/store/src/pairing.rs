//! Strangers who ask to be let in, and those who were. A stranger gets a code; the owner of hermes approves it on the machine it runs
//! on. Every step is one transaction, so that the gateway and any number of command lines can be at it at once.

use hermes_types::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Error, Fault};
use crate::store::Store;

/// What a code is written in: nothing that looks like something else.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Characters of a code.
const CODE: usize = 8;
/// Seconds after which somebody who asked has to ask anew.
const LIFETIME: u64 = 3_600;
/// Seconds between two codes for the same person. Whoever had a place among those who wait leaves it free for as long.
const PAUSE: u64 = 600;
/// How many wait on one platform.
const MOST_PENDING: usize = 3;
/// How many of those who found no place are remembered, so that they are told so once.
const MOST_REMEMBERED: usize = 1_000;
/// Wrong codes until nothing is approved for a while.
const MOST_WRONG: u32 = 5;
/// Seconds of that while.
const LOCKED: u64 = 3_600;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 64;

/// What a stranger gets who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A code, which is nowhere else.
    Code {
        /// The code.
        code: String,
        /// Until when it can be approved.
        expires: Timestamp,
    },
    /// They were let in before.
    In,
    /// They asked a short while ago and are told nothing.
    TooSoon,
    /// Too many wait already.
    Full,
    /// Too many wrong codes were tried.
    Locked {
        /// Until when.
        until: Timestamp,
    },
}

/// What came of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approving {
    /// This one is let in.
    In(Paired),
    /// Nobody who waits has this code.
    Wrong {
        /// How many more wrong codes are borne.
        left: u32,
    },
    /// Too many wrong codes were tried.
    Locked {
        /// Until when.
        until: Timestamp,
    },
}

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paired {
    /// Where.
    pub platform: String,
    /// What the platform calls them.
    pub user: String,
    /// What they call themselves.
    pub name: String,
    /// When.
    pub approved: Timestamp,
}

/// Somebody who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Where.
    pub platform: String,
    /// What the platform calls them.
    pub user: String,
    /// What they call themselves.
    pub name: String,
    /// When they asked last.
    pub asked: Timestamp,
    /// Until when they wait.
    pub expires: Timestamp,
}

impl Store {
    /// Gives a stranger a code, if they may have one.
    pub async fn ask_in(
        &self,
        platform: &str,
        user: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Asked, Error> {
        let (platform, user) = (platform.to_owned(), user.to_owned());
        let name: String = name.chars().take(LONGEST_NAME).collect();
        self.write(move |transaction| ask(transaction, &platform, &user, &name, now.seconds())).await
    }

    /// Lets in whoever was given a code.
    pub async fn approve(&self, platform: &str, code: &str, now: Timestamp) -> Result<Approving, Error> {
        let (platform, code) = (platform.to_owned(), normal(code));
        self.write(move |transaction| approve(transaction, &platform, &code, now.seconds())).await
    }

    /// Whether somebody was let in.
    pub async fn is_paired(&self, platform: &str, user: &str) -> Result<bool, Error> {
        let (platform, user) = (platform.to_owned(), user.to_owned());
        self.read(move |connection| is_in(connection, &platform, &user)).await
    }

    /// Those who were let in, in the order of their platforms and then of their time.
    pub async fn paired(&self) -> Result<Vec<Paired>, Error> {
        self.read(|connection| {
            let sql =
                "SELECT platform, person, name, approved FROM pairings ORDER BY platform, approved, person";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([], |row| {
                Ok(Paired {
                    platform: row.get(0)?,
                    user: row.get(1)?,
                    name: row.get(2)?,
                    approved: Timestamp::from_seconds(row.get(3)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Those who wait.
    pub async fn pending(&self, now: Timestamp) -> Result<Vec<Pending>, Error> {
        self.read(move |connection| {
            let sql = "SELECT platform, person, name, asked, expires FROM pairing_codes WHERE expires > ?1
                       ORDER BY platform, expires, person";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([now.seconds()], |row| {
                Ok(Pending {
                    platform: row.get(0)?,
                    user: row.get(1)?,
                    name: row.get(2)?,
                    asked: Timestamp::from_seconds(row.get(3)?),
                    expires: Timestamp::from_seconds(row.get(4)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Lets somebody in no longer. Tells whether they had been.
    pub async fn revoke_pairing(&self, platform: &str, user: &str) -> Result<bool, Error> {
        let (platform, user) = (platform.to_owned(), user.to_owned());
        self.write(move |transaction| {
            let both = params![platform, user];
            transaction.execute("DELETE FROM pairing_codes WHERE platform = ?1 AND person = ?2", both)?;
            Ok(transaction.execute("DELETE FROM pairings WHERE platform = ?1 AND person = ?2", both)? == 1)
        })
        .await
    }

    /// Forgets those who wait, on one platform or on all, and tells how many there were.
    pub async fn clear_pending(&self, platform: Option<&str>, now: Timestamp) -> Result<usize, Error> {
        let platform = platform.map(str::to_owned);
        self.write(move |transaction| {
            let sql =
                "SELECT count(*) FROM pairing_codes WHERE (?1 IS NULL OR platform = ?1) AND expires > ?2";
            let waited = transaction.query_row(sql, params![platform, now.seconds()], |row| row.get(0))?;
            let sql = "DELETE FROM pairing_codes WHERE ?1 IS NULL OR platform = ?1";
            transaction.execute(sql, params![platform])?;
            Ok(waited)
        })
        .await
    }
}

fn ask(
    transaction: &Transaction<'_>,
    platform: &str,
    user: &str,
    name: &str,
    now: u64,
) -> Result<Asked, Fault> {
    if is_in(transaction, platform, user)? {
        return Ok(Asked::In);
    }
    if let Some(until) = locked(transaction, platform, now)? {
        return Ok(Asked::Locked { until });
    }
    let sql = "DELETE FROM pairing_codes WHERE platform = ?1 AND max(asked, expires) + ?3 <= ?2";
    transaction.execute(sql, params![platform, now, PAUSE])?;
    let sql = "SELECT asked, expires FROM pairing_codes WHERE platform = ?1 AND person = ?2";
    let before: Option<(u64, u64)> = transaction
        .query_row(sql, params![platform, user], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let expires = match before {
        // Asking again does not keep others waiting for longer.
        Some((asked, expires)) if expires > now && asked + PAUSE <= now => expires,
        Some(_) => return Ok(Asked::TooSoon),
        None => now + LIFETIME,
    };
    let count = |condition: &str| -> Result<usize, Fault> {
        let sql = format!("SELECT count(*) FROM pairing_codes WHERE platform = ?1 AND {condition}");
        Ok(transaction.query_row(&sql, params![platform, now], |row| row.get(0))?)
    };
    if before.is_none() && count("expires > ?2")? >= MOST_PENDING {
        if count("expires <= ?2")? >= MOST_REMEMBERED {
            return Ok(Asked::TooSoon);
        }
        keep(transaction, (platform, user, name), (&[], &[]), (now, now))?;
        return Ok(Asked::Full);
    }
    let (code, salt) = new_code()?;
    keep(transaction, (platform, user, name), (&salt, &hash(&salt, &code)), (now, expires))?;
    Ok(Asked::Code { code, expires: Timestamp::from_seconds(expires) })
}

fn keep(
    transaction: &Transaction<'_>,
    (platform, user, name): (&str, &str, &str),
    (salt, hash): (&[u8], &[u8]),
    (asked, expires): (u64, u64),
) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO pairing_codes (platform, person, name, salt, hash, asked, expires)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    transaction.execute(sql, params![platform, user, name, salt, hash, asked, expires])?;
    Ok(())
}

fn approve(transaction: &Transaction<'_>, platform: &str, code: &str, now: u64) -> Result<Approving, Fault> {
    if let Some(until) = locked(transaction, platform, now)? {
        return Ok(Approving::Locked { until });
    }
    let Some((user, name)) = owner_of(transaction, platform, code, now)? else {
        return wrong(transaction, platform, now);
    };
    let sql = "DELETE FROM pairing_codes WHERE platform = ?1 AND person = ?2";
    transaction.execute(sql, params![platform, user])?;
    let sql = "INSERT OR REPLACE INTO pairings (platform, person, name, approved) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(sql, params![platform, user, name, now])?;
    transaction.execute("DELETE FROM pairing_faults WHERE platform = ?1", [platform])?;
    let approved = Timestamp::from_seconds(now);
    Ok(Approving::In(Paired { platform: platform.to_owned(), user, name, approved }))
}

/// Who was given a code. All who wait are looked at, and each comparison takes the same time.
fn owner_of(
    transaction: &Transaction<'_>,
    platform: &str,
    code: &str,
    now: u64,
) -> Result<Option<(String, String)>, Fault> {
    let sql = "SELECT person, name, salt, hash FROM pairing_codes WHERE platform = ?1 AND expires > ?2";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(params![platform, now])?;
    let mut owner = None;
    while let Some(row) = rows.next()? {
        let (salt, kept): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let waits = (row.get(0)?, row.get(1)?);
        if bool::from(hash(&salt, code).as_slice().ct_eq(kept.as_slice())) {
            owner = Some(waits);
        }
    }
    Ok(owner)
}

/// Counts a wrong code.
fn wrong(transaction: &Transaction<'_>, platform: &str, now: u64) -> Result<Approving, Fault> {
    let sql = "INSERT INTO pairing_faults (platform, wrong, locked_until) VALUES (?1, 1, 0)
               ON CONFLICT DO UPDATE SET wrong = wrong + 1 RETURNING wrong";
    let count: u32 = transaction.query_row(sql, [platform], |row| row.get(0))?;
    if count < MOST_WRONG {
        return Ok(Approving::Wrong { left: MOST_WRONG - count });
    }
    let until = now + LOCKED;
    let sql = "UPDATE pairing_faults SET wrong = 0, locked_until = ?2 WHERE platform = ?1";
    transaction.execute(sql, params![platform, until])?;
    Ok(Approving::Locked { until: Timestamp::from_seconds(until) })
}

fn locked(connection: &Connection, platform: &str, now: u64) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT locked_until FROM pairing_faults WHERE platform = ?1 AND locked_until > ?2";
    let until = connection.query_row(sql, params![platform, now], |row| row.get(0)).optional()?;
    Ok(until.map(Timestamp::from_seconds))
}

fn is_in(connection: &Connection, platform: &str, user: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM pairings WHERE platform = ?1 AND person = ?2";
    Ok(connection.prepare_cached(sql)?.exists(params![platform, user])?)
}

fn new_code() -> Result<(String, [u8; 16]), Error> {
    let mut chance = [0; CODE + 16];
    getrandom::fill(&mut chance).map_err(|error| Error::NoRandom(error.to_string()))?;
    let (letters, rest) = chance.split_at(CODE);
    let letter = |byte: &u8| ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    let mut salt = [0; 16];
    salt.copy_from_slice(rest);
    Ok((letters.iter().filter_map(letter).collect(), salt))
}

fn hash(salt: &[u8], code: &str) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(code).finalize().into()
}

/// A code as it was given out, however somebody typed it.
fn normal(code: &str) -> String {
    code.chars()
        .filter(|char| !char.is_whitespace() && *char != '-')
        .map(|char| char.to_ascii_uppercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_of_their_alphabet_and_differ() {
        let codes: std::collections::HashSet<String> = (0..200).map(|_| new_code().unwrap().0).collect();
        assert_eq!(codes.len(), 200);
        let mut used: Vec<u8> = codes.iter().flat_map(|code| code.bytes()).collect();
        used.sort_unstable();
        used.dedup();
        assert!(codes.iter().all(|code| code.len() == 8));
        assert_eq!(used, b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ");
    }

    #[test]
    fn a_code_is_the_same_however_it_is_typed() {
        assert_eq!(normal(" abcd-2345\n"), "ABCD2345");
    }
}
