package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is larder_, 43 characters of 256 random bits, and 6 of a checksum, all of them letters and digits, so that a
// double click selects it whole. A scanner for secrets finds it by the expression
//
//	larder_[0-9A-Za-z]{49}
//
// and the checksum tells it, and the registry before any look-up, from what only looks like one.
const (
	tokenPrefix    = "larder_"
	randomLength   = 43
	checksumLength = 6
	digits         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewToken makes a token. It is shown once; what is stored is its digest.
func NewToken() (token, digest string) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	token = tokenPrefix + base62(new(big.Int).SetBytes(random[:]), randomLength)
	token += checksum(token)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// wellFormed says whether a string has the form of a token, its checksum included.
func wellFormed(s string) bool {
	body := len(s) - checksumLength
	return len(s) == len(tokenPrefix)+randomLength+checksumLength && strings.HasPrefix(s, tokenPrefix) && checksum(s[:body]) == s[body:]
}

// checksum is the CRC-32 of IEEE 802.3. It is no secret.
func checksum(s string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(s)))), checksumLength)
}

// base62 writes a number with leading zeros.
func base62(n *big.Int, length int) string {
	out := make([]byte, length)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
