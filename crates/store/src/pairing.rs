//! Pairing of chat users. An unknown user gets a code, which the owner of Hermes approves on its
//! machine. Every step is one transaction, so the gateway and command-line processes can run
//! concurrently.

use hermes_types::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Error, QueryResult, Result};
use crate::sql;
use crate::store::Store;

/// Without characters that look alike.
const CODE_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_LENGTH: usize = 8;
const CODE_LIFETIME_SECS: u64 = 3_600;
/// The minimum time between two codes for one user. A slot in the list of pending users stays
/// reserved for the same time.
const CODE_INTERVAL_SECS: u64 = 600;
/// Pending users per platform.
const MAX_PENDING: usize = 3;
/// Rejected users that are remembered, so that each is told only once that the list is full.
const MAX_REJECTED: usize = 1_000;
/// Wrong codes before approvals are locked.
const MAX_WRONG_CODES: u32 = 5;
const LOCKOUT_SECS: u64 = 3_600;
const MAX_NAME_CHARS: usize = 64;

/// The response to an unknown user who requests a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeResponse {
    /// A new code. Only its hash is stored.
    Code {
        code: String,
        expires: Timestamp,
    },
    AlreadyPaired,
    /// The user got a code recently and gets no response.
    TooSoon,
    TooManyPending,
    Locked {
        until: Timestamp,
    },
}

/// The result of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalResult {
    Approved(PairedUser),
    /// No pending user has this code.
    WrongCode {
        /// Wrong codes left until approvals are locked.
        left: u32,
    },
    Locked {
        until: Timestamp,
    },
}

/// A user who was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairedUser {
    pub platform: String,
    /// The platform's user id.
    pub user: String,
    /// The display name.
    pub name: String,
    pub approved: Timestamp,
}

/// A user who waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PendingUser {
    pub platform: String,
    /// The platform's user id.
    pub user: String,
    /// The display name.
    pub name: String,
    /// When the user last requested a code.
    pub asked: Timestamp,
    pub expires: Timestamp,
}

impl Store {
    /// Gives an unknown user a code, unless a limit applies.
    pub async fn request_code(
        &self,
        platform: &str,
        user: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<CodeResponse> {
        let (platform, user) = (platform.to_owned(), user.to_owned());
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let now = now.seconds();
        self.write(move |transaction| {
            if transaction.prepare_cached(FIND_PAIRING)?.exists(params![platform, user])? {
                return Ok(CodeResponse::AlreadyPaired);
            }
            if let Some(until) = locked_until(transaction, &platform, now)? {
                return Ok(CodeResponse::Locked { until });
            }
            let sql = "DELETE FROM pairing_codes WHERE platform = ?1 AND max(asked, expires) + ?3 <= ?2";
            transaction.execute(sql, params![platform, now, CODE_INTERVAL_SECS])?;
            let sql = "SELECT asked, expires FROM pairing_codes WHERE platform = ?1 AND person = ?2";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let before: Option<(u64, u64)> = sql::first(transaction, sql, params![platform, user], read)?;
            let expires = match before {
                // A repeated request does not extend the time for which a slot is taken.
                Some((asked, expires)) if expires > now && asked + CODE_INTERVAL_SECS <= now => expires,
                Some(_) => return Ok(CodeResponse::TooSoon),
                None => now + CODE_LIFETIME_SECS,
            };
            let count = |condition: &str| -> QueryResult<usize> {
                let sql = format!("SELECT count(*) FROM pairing_codes WHERE platform = ?1 AND {condition}");
                sql::value(transaction, &sql, params![platform, now])
            };
            let save = |salt: &[u8], hash: &[u8], expires: u64| {
                let sql = "INSERT OR REPLACE INTO pairing_codes (platform, person, name, salt, hash, asked, expires)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                sql::execute(transaction, sql, params![platform, user, name, salt, hash, now, expires])
            };
            if before.is_none() && count("expires > ?2")? >= MAX_PENDING {
                if count("expires <= ?2")? >= MAX_REJECTED {
                    return Ok(CodeResponse::TooSoon);
                }
                save(&[], &[], now)?;
                return Ok(CodeResponse::TooManyPending);
            }
            let (code, salt) = new_code()?;
            save(&salt, &hash(&salt, &code), expires)?;
            Ok(CodeResponse::Code { code, expires: Timestamp::from_seconds(expires) })
        })
        .await
    }

    /// Approves the user who got a code.
    pub async fn approve_code(&self, platform: &str, code: &str, now: Timestamp) -> Result<ApprovalResult> {
        let (platform, code) = (platform.to_owned(), normalize_code(code));
        let now = now.seconds();
        self.write(move |transaction| {
            if let Some(until) = locked_until(transaction, &platform, now)? {
                return Ok(ApprovalResult::Locked { until });
            }
            let Some((user, name)) = find_by_code(transaction, &platform, &code, now)? else {
                return count_wrong_code(transaction, &platform, now);
            };
            let sql = "DELETE FROM pairing_codes WHERE platform = ?1 AND person = ?2";
            transaction.execute(sql, params![platform, user])?;
            let sql =
                "INSERT OR REPLACE INTO pairings (platform, person, name, approved) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(sql, params![platform, user, name, now])?;
            transaction.execute("DELETE FROM pairing_faults WHERE platform = ?1", [&platform])?;
            let approved = Timestamp::from_seconds(now);
            Ok(ApprovalResult::Approved(PairedUser { platform, user, name, approved }))
        })
        .await
    }

    pub async fn is_paired(&self, platform: &str, user: &str) -> Result<bool> {
        Ok(!self.rows(FIND_PAIRING, (platform.to_owned(), user.to_owned()), |_row| Ok(())).await?.is_empty())
    }

    /// The approved users, by platform and time of approval.
    pub async fn paired_users(&self) -> Result<Vec<PairedUser>> {
        let sql = "SELECT platform, person, name, approved FROM pairings ORDER BY platform, approved, person";
        let read = |row: &Row<'_>| {
            Ok(PairedUser {
                platform: row.get(0)?,
                user: row.get(1)?,
                name: row.get(2)?,
                approved: Timestamp::from_seconds(row.get(3)?),
            })
        };
        self.rows(sql, (), read).await
    }

    pub async fn pending_users(&self, now: Timestamp) -> Result<Vec<PendingUser>> {
        let sql = "SELECT platform, person, name, asked, expires FROM pairing_codes WHERE expires > ?1
                   ORDER BY platform, expires, person";
        let read = |row: &Row<'_>| {
            Ok(PendingUser {
                platform: row.get(0)?,
                user: row.get(1)?,
                name: row.get(2)?,
                asked: Timestamp::from_seconds(row.get(3)?),
                expires: Timestamp::from_seconds(row.get(4)?),
            })
        };
        self.rows(sql, (now.seconds(),), read).await
    }

    /// Revokes the access of a user. Returns whether the user had access.
    pub async fn revoke_pairing(&self, platform: &str, user: &str) -> Result<bool> {
        let (platform, user) = (platform.to_owned(), user.to_owned());
        self.write(move |transaction| {
            let both = params![platform, user];
            transaction.execute("DELETE FROM pairing_codes WHERE platform = ?1 AND person = ?2", both)?;
            Ok(transaction.execute("DELETE FROM pairings WHERE platform = ?1 AND person = ?2", both)? == 1)
        })
        .await
    }

    /// Removes the pending users of one platform or all, and returns their number.
    pub async fn clear_pending(&self, platform: Option<&str>, now: Timestamp) -> Result<usize> {
        let platform = platform.map(str::to_owned);
        self.write(move |transaction| {
            let sql =
                "SELECT count(*) FROM pairing_codes WHERE (?1 IS NULL OR platform = ?1) AND expires > ?2";
            let count = sql::value(transaction, sql, params![platform, now.seconds()])?;
            let sql = "DELETE FROM pairing_codes WHERE ?1 IS NULL OR platform = ?1";
            transaction.execute(sql, params![platform])?;
            Ok(count)
        })
        .await
    }
}

/// Finds the pending user with a code. It checks all of them, each in constant time.
fn find_by_code(
    transaction: &Transaction<'_>,
    platform: &str,
    code: &str,
    now: u64,
) -> QueryResult<Option<(String, String)>> {
    let sql = "SELECT person, name, salt, hash FROM pairing_codes WHERE platform = ?1 AND expires > ?2";
    let read = |row: &Row<'_>| {
        let (salt, stored): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let is_owner = bool::from(hash(&salt, code).as_slice().ct_eq(stored.as_slice()));
        Ok((is_owner, (row.get(0)?, row.get(1)?)))
    };
    let pending = sql::rows(transaction, sql, params![platform, now], read)?;
    Ok(pending.into_iter().rfind(|(is_owner, _)| *is_owner).map(|(_, user)| user))
}

fn count_wrong_code(transaction: &Transaction<'_>, platform: &str, now: u64) -> QueryResult<ApprovalResult> {
    let sql = "INSERT INTO pairing_faults (platform, wrong, locked_until) VALUES (?1, 1, 0)
               ON CONFLICT DO UPDATE SET wrong = wrong + 1 RETURNING wrong";
    let count: u32 = sql::value(transaction, sql, [platform])?;
    if count < MAX_WRONG_CODES {
        return Ok(ApprovalResult::WrongCode { left: MAX_WRONG_CODES - count });
    }
    let until = now + LOCKOUT_SECS;
    let sql = "UPDATE pairing_faults SET wrong = 0, locked_until = ?2 WHERE platform = ?1";
    transaction.execute(sql, params![platform, until])?;
    Ok(ApprovalResult::Locked { until: Timestamp::from_seconds(until) })
}

fn locked_until(connection: &Connection, platform: &str, now: u64) -> QueryResult<Option<Timestamp>> {
    let sql = "SELECT locked_until FROM pairing_faults WHERE platform = ?1 AND locked_until > ?2";
    sql::first(connection, sql, params![platform, now], |row| Ok(Timestamp::from_seconds(row.get(0)?)))
}

const FIND_PAIRING: &str = "SELECT 1 FROM pairings WHERE platform = ?1 AND person = ?2";

fn new_code() -> Result<(String, Vec<u8>)> {
    let mut random = [0; CODE_LENGTH + 16];
    getrandom::fill(&mut random).map_err(|error| Error::NoRandom(error.to_string()))?;
    let (salt, digits) = random.split_at(16);
    let digit = |byte: &u8| CODE_ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    Ok((digits.iter().filter_map(digit).collect(), salt.to_vec()))
}

fn hash(salt: &[u8], code: &str) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(code).finalize().into()
}

/// Normalizes a code as typed by a person.
fn normalize_code(code: &str) -> String {
    code.chars()
        .filter(|char| !char.is_whitespace() && *char != '-')
        .map(|char| char.to_ascii_uppercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_use_the_whole_alphabet_and_differ() {
        let codes: std::collections::HashSet<String> = (0..200).map(|_| new_code().unwrap().0).collect();
        assert_eq!(codes.len(), 200);
        let mut used: Vec<u8> = codes.iter().flat_map(|code| code.bytes()).collect();
        used.sort_unstable();
        used.dedup();
        assert!(codes.iter().all(|code| code.len() == 8));
        assert_eq!(used, b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ");
    }

    #[test]
    fn a_code_is_accepted_in_any_spelling() {
        assert_eq!(normalize_code(" abcd-2345\n"), "ABCD2345");
    }
}
