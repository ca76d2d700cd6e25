// Package signing reads the keys that provider packages are signed with, makes and checks signatures, and reads the
// SHA256SUMS that they cover.
//
// It promises that every client can read a key that it has accepted, and verify a signature that it has accepted or made:
// it uses the library and the calls of the clients, and leaves out of a key what one release of that library reads and
// another does not. It bounds what it reads, does no I/O, and a private key is in none of its results and errors.
//
// Sources: OpenPGP, RFC 4880 and RFC 9580; the provider registry protocol,
// https://opentofu.org/docs/internals/provider-registry-protocol/.
package signing

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/registry"
)

// ErrPassphrase says that the passphrase of a private key is missing or wrong.
var ErrPassphrase = errors.New("passphrase")

const (
	maxKey = 64 << 10 // bytes
	// MaxSignature bounds a signature, in bytes.
	MaxSignature = 16 << 10
)

// maxStretch bounds the memory that a passphrase may take, as the exponent of a number of KiB: 2 GiB, the first choice of
// RFC 9106, section 4. The library takes what the key says, which can be 2 TiB.
const maxStretch = 21

// Verify returns the key that made a binary detached signature of a message.
//
// It asks key by key, in their order, as clients do: they go on to the next key only if a signature names another one, and
// give up at any other error.
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
	known := make([]string, len(keys))
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
				return refuse("Sign with a key that is for signing.", "this key is there, and is not for signing")
			}
			known[i] = key.ID
			continue
		case errors.Is(err, pgperrors.ErrKeyRevoked):
			err, hint = errors.New("this key is revoked"), "Sign with another one."
		case errors.Is(err, pgperrors.ErrKeyExpired):
			err = errors.New("this key has expired")
			hint = "Extend it with `gpg --quick-set-expire` and hand in the key anew, or sign with another one."
		case errors.Is(err, pgperrors.ErrSignatureExpired):
			// Of the key's own signatures, too: those that tie a subkey to it.
			err = errors.New("it has expired, or one that the key itself rests on has")
			hint = "Sign again, without `--default-sig-expire`."
		case errors.As(err, &mismatch):
			err = fmt.Errorf("it is not of these bytes (%w)", err)
			hint = "Sign exactly the file that is published."
		}
		return refuse(hint, "%w", err)
	}
	if len(keys) == 0 {
		return refuse("Add the public key first.", "there is no key to verify it by")
	}
	return refuse("Add its public key, or sign with one of these.", "this is none of the keys %s", strings.Join(known, ", "))
}

// Issuer returns the id of the key that a binary detached signature names, which may be a subkey's. It says nothing of
// whether the signature holds, but refuses what Verify would refuse whatever the keys and the message are.
func Issuer(signature []byte, now time.Time) (string, error) {
	sig, err := parseSignature(signature, now)
	if err != nil {
		return "", err
	}
	return keyID(*sig.IssuerKeyId), nil
}

// parseSignature reads a signature of which clients can say who made it.
func parseSignature(signature []byte, now time.Time) (*packet.Signature, error) {
	refuse := func(hint, format string, args ...any) (*packet.Signature, error) {
		err := fmt.Errorf("%w signature: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
		return nil, registry.WithHint(err, "%s", hint)
	}
	const sign = "Make it with `gpg --detach-sign`."
	if len(signature) > MaxSignature {
		return refuse("Hand in the one that `gpg --detach-sign` writes.", "it has more than %d bytes", MaxSignature)
	}
	if bytes.HasPrefix(trimText(signature), []byte(armorBegin)) {
		return refuse("Make it with `gpg --detach-sign`, without `--armor`.", "it is armored, which clients do not read")
	}
	if hash := weakHash(signature); hash != "" {
		return refuse("Sign again with `gpg --digest-algo SHA512 --detach-sign`.",
			"it uses %s, by which signatures can be forged", hash)
	}
	// One packet, read to its last byte: the library leaves what is behind the fields it knows.
	in := bytes.NewReader(signature)
	p, err := packet.Read(in)
	if err != nil {
		return refuse("Make it with `gpg --detach-sign`, without `--armor`.", "it cannot be read (%w)", err)
	}
	sig, ok := p.(*packet.Signature)
	if !ok {
		return refuse("Make it with `gpg --detach-sign`, not with `--sign`.", "it is something else of OpenPGP")
	}
	if in.Len() > 0 {
		return refuse("Hand in one signature, by one key, alone.", "there is something behind it")
	}
	if sig.Version != 4 || sig.SigType != packet.SigTypeBinary && sig.SigType != packet.SigTypeText {
		return refuse(sign, "it is of version %d and type %#02x, which clients do not take", sig.Version, byte(sig.SigType))
	}
	if sig.IssuerKeyId == nil || *sig.IssuerKeyId == 0 {
		return refuse(sign, "it does not name its key, and clients look for that")
	}
	// Terraform refuses one that has expired, and a published version cannot be signed again.
	if sig.SigLifetimeSecs != nil && *sig.SigLifetimeSecs != 0 {
		return refuse("Make it without `--default-sig-expire`.",
			"it expires, and the version could not be installed from then on")
	}
	if sig.CreationTime.After(now) {
		return refuse("Set the clock of where it was made, and sign again.",
			"it is by key %s and dated %s, which is in the future", keyID(*sig.IssuerKeyId), date(sig.CreationTime))
	}
	return sig, nil
}

// weakHashes are the hashes by OpenPGP's ids for which two messages with the same
// digest can be made. Clients accept SHA-1. Source: RFC 9580, section 9.5.
var weakHashes = map[byte]string{1: "MD5", 2: "SHA-1", 3: "RIPEMD-160"}

// weakHash returns the name of a signature's hash if it is weak, or "". It reads
// the bytes, since the library does not name a hash that it does not know.
func weakHash(signature []byte) string {
	const tag, version, hash = 2, 0, 3
	p, err := packet.NewOpaqueReader(bytes.NewReader(signature)).Next()
	if err != nil || p.Tag != tag || len(p.Contents) <= hash || p.Contents[version] != 4 {
		return ""
	}
	return weakHashes[p.Contents[hash]]
}

// Sign returns a binary detached signature of a message, and the public part of the key that made it. The private key is
// armored or binary; the passphrase counts where it is encrypted, and errors are ErrPassphrase if it does not open it.
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
	// An export of subkeys alone has a stub for the primary key; a smart card leaves stubs everywhere.
	var with *packet.PrivateKey
	for _, k := range able {
		if k.PrivateKey != nil && !k.PrivateKey.Dummy() {
			with = k.PrivateKey
			break
		}
	}
	if with == nil {
		return refuse("Export it with `gpg --armor --export-secret-keys`. If a smart card holds it, sign with `gpg --detach-sign`.",
			errors.New("the part that signs is not in it"))
	}
	if err := open(with, passphrase); err != nil {
		return refuse(registry.Hint(err), err)
	}
	// SHA-512, because GnuPG wants a hash of no fewer bits than a curve has.
	config := &packet.Config{Time: func() time.Time { return now }, DefaultHash: crypto.SHA512, SigningKeyId: with.KeyId}
	var out bytes.Buffer
	if err := openpgp.DetachSign(&out, e, bytes.NewReader(message), config); err != nil {
		// Not wrapped, as nothing that has seen the private key is.
		return refuse("Try `gpg --detach-sign` with it.", errors.New("signing with it fails"))
	}
	// A private key that does not belong to its public one, and a fault in computing, make signatures that give it away.
	if _, err := Verify([]Key{key}, message, out.Bytes(), now); err != nil {
		return refuse("It is damaged. Export it again.", errors.New("what it signs does not verify"))
	}
	return out.Bytes(), key, nil
}

// PrivateKeyID returns the id of a private key, which need not be opened for that.
// Errors are registry.ErrInvalid.
func PrivateKeyID(privateKey []byte) (string, error) {
	e, err := readPrivate(privateKey)
	if err != nil {
		return "", err
	}
	return keyID(e.PrimaryKey.KeyId), nil
}

// open decrypts a private key.
func open(k *packet.PrivateKey, passphrase []byte) error {
	if !k.Encrypted {
		return nil
	}
	if len(passphrase) == 0 {
		return fmt.Errorf("%w missing: the key is encrypted", ErrPassphrase)
	}
	if n, err := stretch(k); err != nil || n > maxStretch {
		err := fmt.Errorf("its passphrase takes more than %d MiB of memory", 1<<maxStretch>>10)
		return registry.WithHint(err, "Set it anew with `gpg --change-passphrase`.")
	}
	if k.Decrypt(passphrase) != nil {
		return fmt.Errorf("%w wrong: the key does not open", ErrPassphrase)
	}
	return nil
}

// stretch returns the memory that the passphrase of a key takes, as Argon2 has it, the exponent of a number of KiB; zero if
// the key does not use Argon2. Source: RFC 9580, sections 3.7.1.4 and 5.5.3. The library does not tell, so that the octets
// have to: usage, cipher, AEAD mode, then the specifier with its type, salt, passes, parallelism and memory.
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

// keyID writes an id as clients show it.
func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
