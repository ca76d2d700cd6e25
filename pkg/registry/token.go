package registry

import (
	"hash/crc32"
	"math/big"
	"strings"
	"time"
)

// A token is TokenPrefix, 43 characters that encode 256 random bits, and 6
// characters of a checksum. All are letters, digits and underscores, so a
// double click selects the complete token. Secret scanners can find it with the
// expression
//
//	larder_[0-9A-Za-z]{49}
//
// The checksum lets scanners, and the registry before any lookup, reject texts
// that only look like a token.
const (
	// TokenPrefix is the beginning of a token.
	TokenPrefix    = "larder_"
	randomLength   = 43
	checksumLength = 6
	digits         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// FormatToken returns the token with 256 random bits.
func FormatToken(random [32]byte) string {
	token := TokenPrefix + base62(new(big.Int).SetBytes(random[:]), randomLength)
	return token + TokenChecksum(token)
}

// IsToken reports whether a string has the form of a token with a correct
// checksum.
func IsToken(s string) bool {
	body := len(s) - checksumLength
	return len(s) == len(TokenPrefix)+randomLength+checksumLength &&
		strings.HasPrefix(s, TokenPrefix) && TokenChecksum(s[:body]) == s[body:]
}

// TokenChecksum returns the CRC-32 of IEEE 802.3 as six characters. It is not a
// secret. GitHub and npm end their tokens with the same checksum.
func TokenChecksum(s string) string {
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

// TokenID returns the ID of the token with a digest, which lists and logs show.
func TokenID(digest string) string { return digest[:min(len(digest), 12)] }

// Token is the record of a token. It does not contain the token itself.
type Token struct {
	// ID identifies the token if its name is ambiguous. See [TokenID].
	ID string `json:"id"`
	// Name names the holder or the purpose of the token.
	Name string `json:"name"`
	// Scopes are the permissions of the token, such as read:modules/acme/*.
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// ExpiresAt is the zero time if the token never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// maxTokenName is the maximum length of the name of a new token in bytes.
const maxTokenName = 64

// ReplacedName returns the name of the token once it is replaced. It ends in the
// ID, so that names stay unique.
func (t Token) ReplacedName() string {
	return t.Name[:min(len(t.Name), maxTokenName-len(t.replacedEnding()))] + t.replacedEnding()
}

func (t Token) replacedEnding() string { return "-old-" + t.ID }

// IsReplaced reports whether the token has a [Token.ReplacedName]. Another token
// has replaced it, so it soon expires.
func (t Token) IsReplaced() bool { return strings.HasSuffix(t.Name, t.replacedEnding()) }

// IsExpired reports whether the token has expired at a time.
func (t Token) IsExpired(now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
