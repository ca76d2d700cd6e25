package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is larder_, 43 characters that encode 256 random bits, and 6
// characters of a checksum. All are letters, digits and underscores, so a
// double click selects the complete token. Secret scanners can find it with the
// expression
//
//	larder_[0-9A-Za-z]{49}
//
// The checksum lets scanners, and the registry before any lookup, reject texts
// that only look like a token.
const (
	tokenPrefix    = "larder_"
	randomLength   = 43
	checksumLength = 6
	digits         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewToken returns a new token and its digest. Show the token once, and store
// only the digest.
func NewToken() (token, digest string) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	token = tokenPrefix + base62(new(big.Int).SetBytes(random[:]), randomLength)
	token += checksum(token)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// wellFormed reports whether a string has the form of a token with a correct
// checksum.
func wellFormed(s string) bool {
	body := len(s) - checksumLength
	return len(s) == len(tokenPrefix)+randomLength+checksumLength &&
		strings.HasPrefix(s, tokenPrefix) && checksum(s[:body]) == s[body:]
}

// checksum returns the CRC-32 of IEEE 802.3. It is not a secret.
func checksum(s string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(s)))), checksumLength)
}

// base62 formats a number with leading zeros.
func base62(n *big.Int, length int) string {
	out := make([]byte, length)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
