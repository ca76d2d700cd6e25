// Package signing reads the keys that sign provider packages, creates and
// verifies signatures, and reads SHA256SUMS files.
//
// Every client can read the keys that this package accepts, and verify the
// signatures that it accepts or creates. The package uses the same library and
// calls as the clients. It removes the parts of a key that only some releases
// of that library read.
//
// The package limits the size of its input and does no I/O. Its results and
// errors never contain a private key.
//
// Sources: OpenPGP, RFC 4880 and RFC 9580; the provider registry protocol,
// https://opentofu.org/docs/internals/provider-registry-protocol/.
package signing

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/registry"
)

// ErrPassphrase means that the passphrase of a private key is missing or wrong.
var ErrPassphrase = errors.New("passphrase")

const (
	maxKey = 64 << 10 // bytes
	// MaxSignature is the largest size of a signature, in bytes.
	MaxSignature = 16 << 10
)

// maxStretch limits the memory that a passphrase may use, as the exponent of a
// number of KiB. It allows 2 GiB, the first choice of RFC 9106, section 4. The
// library has no limit, and a key can demand 2 TiB.
const maxStretch = 21

// Verify returns the key that made a binary detached signature of a message. It
// returns registry.ErrInvalid if no key verifies the signature.
//
// Verify tries the keys in their order, as clients do. Clients continue with
// the next key only if the signature names another one, and stop at any other
// error.
func Verify(keys []Key, message, signature []byte, now time.Time) (signer Key, err error) {
	sig, err := parseSignature(signature, now)
	if err != nil {
		return Key{}, err
	}
	issuer := keyID(*sig.IssuerKeyId)
	refuse := func(hint, format string, args ...any) (Key, error) {
		err := fmt.Errorf("%w signature by key %s: %w", registry.ErrInvalid, issuer, fmt.Errorf(format, args...))
		if hint != "" {
			err = registry.WithHint(err, "%s", hint)
		}
		return Key{}, err
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	ids := make([]string, len(keys))
	for i, key := range keys {
		e, err := readPublic([]byte(key.ASCIIArmor))
		if err != nil {
			return Key{}, fmt.Errorf("key %s: %w", key.ID, err)
		}
		ring := openpgp.EntityList{e}
		_, err = openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), config)
		var mismatch pgperrors.SignatureError
		hint := ""
		switch {
		case err == nil:
			return key, nil
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			if len(ring.KeysById(*sig.IssuerKeyId)) > 0 {
				return refuse("Sign with a key that is for signing.", "this key is not for signing")
			}
			ids[i] = key.ID
			continue
		case errors.Is(err, pgperrors.ErrKeyRevoked):
			err, hint = errors.New("this key is revoked"), "Sign with another one."
		case errors.Is(err, pgperrors.ErrKeyExpired):
			err = errors.New("this key has expired")
			hint = "Extend it with `gpg --quick-set-expire` and add the key again, or sign with another one."
		case errors.Is(err, pgperrors.ErrSignatureExpired):
			// The library returns this error for signatures of the key's parts too, such
			// as those that bind a subkey to it.
			err = errors.New("it has expired, or a signature within the key has expired")
			hint = "Sign again, without `--default-sig-expire`."
		case errors.As(err, &mismatch):
			err = fmt.Errorf("it does not match the file (%w)", err)
			hint = "Sign exactly the file that you publish."
		}
		return refuse(hint, "%w", err)
	}
	if len(keys) == 0 {
		return refuse("Add its public key first, with `larder key add`.", "there is no key to verify it with")
	}
	return refuse("Add its public key with `larder key add`, or sign with one of these.", "the key is not one of %s", strings.Join(ids, ", "))
}

// Check is like [Verify] for a signature that may exist already. If clients accept it,
// but [Verify] does not, tolerated is the reason, which is registry.ErrInvalid. For example,
// the key has expired since.
func Check(keys []Key, message, signature []byte, now time.Time) (signer Key, tolerated, err error) {
	signer, err = Verify(keys, message, signature, now)
	if err == nil {
		return signer, nil, nil
	}
	armored := make([]string, len(keys))
	for i, key := range keys {
		armored[i] = key.ASCIIArmor
	}
	accepted, failed := VerifyOrigin(armored, message, signature, now)
	at := slices.IndexFunc(keys, func(k Key) bool { return k.ID == accepted.ID })
	if failed != nil || at < 0 {
		return Key{}, nil, err
	}
	if end := keys[at].ExpiresAt; accepted.Expired && !end.IsZero() && !end.After(now) {
		order := "after"
		if accepted.SignedAt.After(end) {
			order = "before"
		}
		err = registry.WithHint(fmt.Errorf("%w signature by key %s: this key expired on %s, %s it signed on %s",
			registry.ErrInvalid, accepted.ID, date(end), order, date(accepted.SignedAt)), "%s", registry.Hint(err))
	}
	return keys[at], err, nil
}

// Issuer returns the ID of the key that a binary detached signature names,
// which may be the ID of a subkey. It does not verify the signature. It rejects
// every signature that [Verify] rejects for any keys and message.
func Issuer(signature []byte, now time.Time) (string, error) {
	sig, err := parseSignature(signature, now)
	if err != nil {
		return "", err
	}
	return keyID(*sig.IssuerKeyId), nil
}

// parseSignature reads a signature whose key clients can identify.
func parseSignature(signature []byte, now time.Time) (*packet.Signature, error) {
	refuse := func(hint, format string, args ...any) (*packet.Signature, error) {
		err := fmt.Errorf("%w signature: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
		return nil, registry.WithHint(err, "%s", hint)
	}
	const sign = "Make it with `gpg --detach-sign`."
	if len(signature) > MaxSignature {
		return refuse("Use the file that `gpg --detach-sign` writes.", "it has more than %d bytes", MaxSignature)
	}
	if bytes.HasPrefix(trimText(signature), []byte(armorBegin)) {
		return refuse("Make it with `gpg --detach-sign`, without `--armor`.", "it is armored, which clients do not read")
	}
	if hash := weakHash(signature); hash != "" {
		return refuse("Sign again with `gpg --digest-algo SHA512 --detach-sign`.",
			"it uses %s, with which signatures can be forged", hash)
	}
	// The signature must be one packet. The library ignores bytes after the
	// fields that it reads.
	in := bytes.NewReader(signature)
	p, err := packet.Read(in)
	if err != nil {
		return refuse("Make it with `gpg --detach-sign`, without `--armor`.", "it cannot be read (%w)", err)
	}
	sig, ok := p.(*packet.Signature)
	if !ok {
		return refuse("Make it with `gpg --detach-sign`, not with `--sign`.", "it is an OpenPGP packet of another type")
	}
	if in.Len() > 0 {
		return refuse("Use one signature by one key.", "there are bytes after it")
	}
	if sig.Version != 4 || sig.SigType != packet.SigTypeBinary && sig.SigType != packet.SigTypeText {
		return refuse(sign, "its version is %d and its type %#02x, which clients do not accept",
			sig.Version, byte(sig.SigType))
	}
	if sig.IssuerKeyId == nil || *sig.IssuerKeyId == 0 {
		return refuse(sign, "it does not name its key, which clients need")
	}
	// Terraform rejects expired signatures, and nobody can sign a published
	// version again.
	if sig.SigLifetimeSecs != nil && *sig.SigLifetimeSecs != 0 {
		return refuse("Make it without `--default-sig-expire`.",
			"it expires, after which clients could not install the version")
	}
	if sig.CreationTime.After(now) {
		return refuse("Set the clock of the machine that made it, and sign again.",
			"it is by key %s and from %s, which is in the future", keyID(*sig.IssuerKeyId), date(sig.CreationTime))
	}
	return sig, nil
}

// weakHashes maps the OpenPGP IDs of hashes to their names if an attacker can
// find two messages with the same digest. Clients accept SHA-1. Source: RFC
// 9580, section 9.5.
var weakHashes = map[byte]string{1: "MD5", 2: "SHA-1", 3: "RIPEMD-160"}

// weakHash returns the name of a signature's hash if it is weak, or an empty
// string. It reads the bytes, because the library does not name unsupported
// hashes.
func weakHash(signature []byte) string {
	const tag, version, hash = 2, 0, 3
	p, err := packet.NewOpaqueReader(bytes.NewReader(signature)).Next()
	if err != nil || p.Tag != tag || len(p.Contents) <= hash || p.Contents[version] != 4 {
		return ""
	}
	return weakHashes[p.Contents[hash]]
}

// Sign returns a binary detached signature of a message, and the public part of
// the key that made it. The private key is armored or binary. The passphrase is
// only used if the key is encrypted.
//
// Sign returns registry.ErrInvalid if the key cannot sign. The error also wraps
// [ErrPassphrase] if the passphrase is missing or wrong.
func Sign(privateKey, passphrase, message []byte, now time.Time) (signature []byte, key Key, err error) {
	e, err := readPrivate(privateKey)
	if err != nil {
		return nil, Key{}, err
	}
	key, able, err := describe(e, now)
	if err != nil {
		return nil, Key{}, err
	}
	refuse := func(hint string, err error) ([]byte, Key, error) {
		err = fmt.Errorf("%w private key %s: %w", registry.ErrInvalid, key.ID, err)
		if hint != "" {
			err = registry.WithHint(err, "%s", hint)
		}
		return nil, Key{}, err
	}
	// An export of subkeys has a stub instead of the primary key. An export from
	// a smart card has only stubs.
	var with *packet.PrivateKey
	for _, k := range able {
		if k.PrivateKey != nil && !k.PrivateKey.Dummy() {
			with = k.PrivateKey
			break
		}
	}
	if with == nil {
		return refuse("Export it with `gpg --armor --export-secret-keys`. "+
			"If it is on a smart card, sign with `gpg --detach-sign`.",
			errors.New("its signing key is missing"))
	}
	if err := open(with, passphrase); err != nil {
		return refuse(registry.Hint(err), err)
	}
	// SHA-512, because GnuPG requires a hash with at least as many bits as the curve.
	config := &packet.Config{Time: func() time.Time { return now }, DefaultHash: crypto.SHA512, SigningKeyId: with.KeyId}
	var out bytes.Buffer
	if err := openpgp.DetachSign(&out, e, bytes.NewReader(message), config); err != nil {
		// The error is not wrapped, because it may contain parts of the private key.
		return refuse("Try `gpg --detach-sign` with it.", errors.New("signing with it failed"))
	}
	// If the private key does not match the public key, or a computation fails,
	// the signature can disclose the private key.
	if _, err := Verify([]Key{key}, message, out.Bytes(), now); err != nil {
		return refuse("The key is damaged. Export it again.", errors.New("its signature does not verify"))
	}
	return out.Bytes(), key, nil
}

// PrivateKeyID returns the ID of a private key, which can be encrypted. It
// returns registry.ErrInvalid for an invalid key.
func PrivateKeyID(privateKey []byte) (string, error) {
	e, err := readPrivate(privateKey)
	if err != nil {
		return "", err
	}
	return keyID(e.PrimaryKey.KeyId), nil
}

func open(k *packet.PrivateKey, passphrase []byte) error {
	if !k.Encrypted {
		return nil
	}
	if len(passphrase) == 0 {
		return fmt.Errorf("%w missing: the key is encrypted", ErrPassphrase)
	}
	if n, err := stretch(k); err != nil || n > maxStretch {
		err := fmt.Errorf("its passphrase needs more than %d MiB of memory", 1<<maxStretch>>10)
		return registry.WithHint(err, "Set the passphrase again with `gpg --change-passphrase`.")
	}
	if k.Decrypt(passphrase) != nil {
		return fmt.Errorf("%w wrong: the key cannot be decrypted", ErrPassphrase)
	}
	return nil
}

// stretch returns the memory that the passphrase of a key needs with Argon2, as
// the exponent of a number of KiB. It returns zero if the key does not use
// Argon2.
//
// The library does not expose this value, so stretch reads the octets. They are
// usage, cipher and AEAD mode, then the specifier with its type, salt, passes,
// parallelism and memory. Source: RFC 9580, sections 3.7.1.4 and 5.5.3.
func stretch(k *packet.PrivateKey) (byte, error) {
	const usage, specifier, memory = 0, 3, 22
	var public, private bytes.Buffer
	if err := errors.Join(k.PublicKey.Serialize(&public), k.Serialize(&private)); err != nil {
		return 0, err
	}
	a, err := packet.NewOpaqueReader(&public).Next()
	if err != nil {
		return 0, err
	}
	b, err := packet.NewOpaqueReader(&private).Next()
	if err != nil {
		return 0, err
	}
	protection, ok := bytes.CutPrefix(b.Contents, a.Contents)
	if !ok {
		return 0, errors.New("a private key does not begin with its public one")
	}
	if len(protection) <= memory || protection[usage] != byte(packet.S2KAEAD) || protection[specifier] != 4 {
		return 0, nil
	}
	return protection[memory], nil
}

// keyID formats an ID as clients show it.
func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
