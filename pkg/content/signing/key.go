package signing

import (
	"bytes"
	"cmp"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Key is a public key of a namespace that signs packages. This package sets and
// reads only the fields that describe the key itself.
type Key = registry.SigningKey

const (
	armorBegin = "-----BEGIN "
	maxOwner   = 256 // bytes
	minRSA     = 2048
)

// ParseKey reads one public key that can sign at the time now. It returns
// registry.ErrInvalid for any other input.
func ParseKey(armored []byte, now time.Time) (Key, error) {
	e, err := readPublic(armored)
	if err != nil {
		return Key{}, err
	}
	key, _, err := describe(e, now)
	return key, err
}

// ReadKey is like [ParseKey], and accepts a key that could sign once, but has expired.
// It verifies what exists, as clients do.
func ReadKey(armored []byte, now time.Time) (Key, error) {
	e, err := readPublic(armored)
	if err != nil {
		return Key{}, err
	}
	return describeExpired(e, now)
}

// describeExpired describes a key that can sign now. A key that cannot sign any more is
// described as of its last second.
func describeExpired(e *openpgp.Entity, now time.Time) (Key, error) {
	key, _, err := describe(e, now)
	if err == nil {
		return key, nil
	}
	self, user := e.PrimarySelfSignature()
	if e.Revoked(now) || user.Revoked(now) {
		return Key{}, err
	}
	e.Subkeys = slices.DeleteFunc(e.Subkeys, func(s openpgp.Subkey) bool { return s.Revoked(now) })
	end := ends(e.PrimaryKey, self)
	var last time.Time
	for i, s := range e.Subkeys {
		last = later(last, ends(s.PublicKey, s.Sig, s.Sig.EmbeddedSignature), i == 0)
	}
	if end = earlier(end, last); end.IsZero() || end.After(now) {
		return Key{}, err
	}
	if key, _, before := describe(e, end.Add(-time.Second)); before == nil {
		return key, nil
	}
	return Key{}, err
}

// readPublic reads and trims one armored public key. It does not check whether
// the key can sign.
func readPublic(armored []byte) (*openpgp.Entity, error) {
	const export = "Export one public key with `gpg --armor --export --output FILE KEYID`."
	refuse := func(hint, format string, args ...any) (*openpgp.Entity, error) {
		err := fmt.Errorf("%w signing key: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
		return nil, registry.WithHint(err, "%s", hint)
	}
	if len(armored) > maxKey {
		return refuse("Export it with `gpg --armor --export --export-options export-minimal`.",
			"it has more than %d bytes", maxKey)
	}
	if !isArmored(armored) {
		return refuse(export, "it is not an armored OpenPGP key")
	}
	kind, packets, err := unarmor(armored)
	if err != nil {
		return refuse(export, "%w", err)
	}
	const (
		private      = "it is a private key, which must not leave its owner"
		exportPublic = "Export the public one with `gpg --armor --export`."
	)
	if kind == openpgp.PrivateKeyType {
		return refuse(exportPublic, private)
	}
	if kind != openpgp.PublicKeyType {
		return refuse(export, "it is a block of type %.40q", kind)
	}
	n, err := count(packets)
	switch {
	case err != nil:
		return refuse(export, "it cannot be read (%w)", err)
	case n[tagPrivateKey]+n[tagPrivateSubkey] > 0:
		return refuse(exportPublic, private)
	case n[tagPublicKey] > 1:
		return refuse("Export them one by one with `gpg --armor --export KEYID`, and add each of them.",
			"there are %d keys in one block", n[tagPublicKey])
	}
	e, err := read(packets)
	if err != nil {
		return refuse(export, "it cannot be read (%w)", err)
	}
	return e, nil
}

// readPrivate reads and trims one private key, armored or binary. Its errors
// have no details, because these could contain bytes of the key.
func readPrivate(privateKey []byte) (*openpgp.Entity, error) {
	refuse := func(format string, args ...any) (*openpgp.Entity, error) {
		err := fmt.Errorf("%w private key: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
		return nil, registry.WithHint(err, "Export the signing key with `gpg --armor --export-secret-keys KEYID`.")
	}
	if len(privateKey) > maxKey {
		return refuse("it has more than %d bytes", maxKey)
	}
	packets := privateKey
	if isArmored(privateKey) {
		var kind string
		var err error
		kind, packets, err = unarmor(privateKey)
		if err != nil || kind != openpgp.PrivateKeyType && kind != openpgp.PublicKeyType {
			return refuse("it is not one armored private key")
		}
	}
	n, err := count(packets)
	switch {
	case err != nil || len(packets) == 0:
		return refuse("it cannot be read")
	case n[tagPrivateKey] == 0:
		return refuse("it is a public key")
	case n[tagPrivateKey]+n[tagPublicKey] > 1:
		return refuse("there are several keys")
	}
	e, err := read(packets)
	if err != nil {
		return refuse("it cannot be read")
	}
	return e, nil
}

// trimText decodes a text with a byte order mark, which no binary key or signature
// begins with. It removes white space around the text.
func trimText(text []byte) []byte {
	if textfile.HasMark(text) {
		text, _ = textfile.Decode("", text) // a damaged text becomes empty, so it has no armor
	}
	return bytes.TrimSpace(text)
}

// armorLine matches the beginning of the first line of an armored block.
var armorLine = regexp.MustCompile(`(?m)^[ \t]*` + armorBegin)

// isArmored reports whether a text has an armored block.
func isArmored(text []byte) bool { return armorLine.Match(trimText(text)) }

// unarmor returns the type and the bytes of an armored block. The text must
// contain exactly one. Comments and greetings around it are ignored.
func unarmor(text []byte) (kind string, packets []byte, err error) {
	text = trimText(text)
	begins := armorLine.FindAllIndex(text, 2)
	if len(begins) > 1 {
		return "", nil, errors.New("there are several armored blocks, and clients only read the first one")
	}
	text = text[begins[0][0]:]
	block, err := armor.Decode(bytes.NewReader(text))
	if err != nil {
		return "", nil, errors.New("its armor is damaged")
	}
	if !regexp.MustCompile(`(?m)^[ \t]*-----END ` + regexp.QuoteMeta(block.Type) + "-----").Match(text) {
		return "", nil, errors.New("its armor is truncated")
	}
	packets, err = io.ReadAll(block.Body)
	if err != nil {
		return "", nil, errors.New("its armor is damaged")
	}
	return block.Type, packets, nil
}

// The types of the packets of keys. Source: RFC 9580, section 5.
const (
	tagSignature     = 2
	tagPrivateKey    = 5
	tagPublicKey     = 6
	tagPrivateSubkey = 7
	tagTrust         = 12
	tagUserID        = 13
	tagPublicSubkey  = 14
	tagUserAttribute = 17
)

// count returns the number of packets of each type. It returns an error for
// packets that do not belong to keys. The library skips some of these, and keys
// of unknown versions.
func count(packets []byte) (n [64]int, err error) {
	for in := packet.NewOpaqueReader(bytes.NewReader(packets)); ; {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		switch p.Tag {
		case tagSignature, tagPrivateKey, tagPublicKey, tagPrivateSubkey,
			tagTrust, tagUserID, tagPublicSubkey, tagUserAttribute:
			n[p.Tag]++
		default:
			return n, fmt.Errorf("there is a packet of type %d, which does not belong to a key", p.Tag)
		}
	}
}

// read reads one key and removes everything that is not needed to verify
// signatures.
//
// It removes subkeys that do not sign, because some new kinds make older
// clients reject the whole key. It removes signatures by other people, because
// they disclose social connections.
//
// It retains only the primary user ID. If no user ID is marked as primary, the
// library uses the newest one. If several are equally new, for example after a
// change of the expiry, the library uses the first one in a map.
func read(packets []byte) (*openpgp.Entity, error) {
	in := packet.NewReader(bytes.NewReader(packets))
	e, err := openpgp.ReadEntity(in)
	if err != nil {
		return nil, err
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there are bytes after the key")
	}
	if e.PrimaryKey.Version != 4 {
		return nil, fmt.Errorf("its version is %d instead of 4, which some clients cannot read", e.PrimaryKey.Version)
	}
	var ids []*openpgp.Identity
	for _, name := range slices.Sorted(maps.Keys(e.Identities)) {
		// The library panics when it verifies a signature by a key whose only user
		// ID was revoked but never signed.
		if id := e.Identities[name]; id.SelfSignature != nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("it has no self-signed user ID")
	}
	id := slices.MinFunc(ids, func(a, b *openpgp.Identity) int {
		return cmp.Or(
			cmp.Compare(len(a.Revocations), len(b.Revocations)),
			cmp.Compare(marked(b), marked(a)),
			b.SelfSignature.CreationTime.Compare(a.SelfSignature.CreationTime),
		)
	})
	id.Signatures = append(slices.Clip(id.Revocations), id.SelfSignature)
	e.Identities = map[string]*openpgp.Identity{id.Name: id}
	e.Signatures = nil
	e.Subkeys = slices.DeleteFunc(e.Subkeys, func(s openpgp.Subkey) bool {
		return !s.Sig.FlagsValid || !s.Sig.FlagSign || s.Sig.EmbeddedSignature == nil
	})
	return e, nil
}

// marked returns 1 if a user ID is marked as primary, or 0.
func marked(id *openpgp.Identity) int {
	if primary := id.SelfSignature.IsPrimaryId; primary != nil && *primary {
		return 1
	}
	return 0
}

// describe returns the description of a key that can sign at the time now, and
// its parts that can sign. The newest subkey comes first, as in GnuPG, and the
// primary key last. It removes weak subkeys from e.
func describe(e *openpgp.Entity, now time.Time) (Key, []openpgp.Key, error) {
	id := keyID(e.PrimaryKey.KeyId)
	refuse := func(hint, format string, args ...any) (Key, []openpgp.Key, error) {
		err := fmt.Errorf("%w signing key %s: %w", registry.ErrInvalid, id, fmt.Errorf(format, args...))
		return Key{}, nil, registry.WithHint(err, "%s", hint)
	}
	name, err := algorithm(e.PrimaryKey)
	if err != nil {
		return refuse(replace, "%w", err)
	}
	self, user := e.PrimarySelfSignature()
	end := ends(e.PrimaryKey, self)
	switch {
	case e.Revoked(now):
		return refuse("Sign with another one.", "it is revoked")
	case user.Revoked(now):
		return refuse("Add one with `gpg --quick-add-uid`, and export the key again.", "its user IDs are revoked")
	case e.PrimaryKey.CreationTime.After(now) || self.CreationTime.After(now):
		return refuse("Set the clock of the machine that made it.",
			"it is from %s, which is in the future", date(self.CreationTime))
	case e.PrimaryKey.KeyExpired(self, now) || self.SigExpired(now):
		return refuse("Extend it with `gpg --quick-set-expire`, and export it again.", "it expired at %s", date(end))
	}
	var able []openpgp.Key
	var last time.Time
	var strong []openpgp.Subkey
	for _, s := range e.Subkeys {
		expired := s.PublicKey.KeyExpired(s.Sig, now) || s.Sig.SigExpired(now) || s.Sig.EmbeddedSignature.SigExpired(now)
		fit := !expired && !s.Revoked(now)
		if _, err := algorithm(s.PublicKey); err != nil {
			if fit {
				return refuse(replace, "its signing subkey %s: %w", keyID(s.PublicKey.KeyId), err)
			}
			continue
		}
		// Expired subkeys remain, because clients still accept their earlier signatures.
		strong = append(strong, s)
		if fit {
			last = later(last, ends(s.PublicKey, s.Sig, s.Sig.EmbeddedSignature), len(able) == 0)
			able = append(able, openpgp.Key{
				Entity: e, PublicKey: s.PublicKey, PrivateKey: s.PrivateKey,
				SelfSignature: s.Sig, Revocations: s.Revocations,
			})
		}
	}
	e.Subkeys = strong
	slices.SortStableFunc(able, func(a, b openpgp.Key) int {
		return b.SelfSignature.CreationTime.Compare(a.SelfSignature.CreationTime)
	})
	if self.FlagsValid && self.FlagSign {
		last = later(last, end, len(able) == 0)
		able = append(able, openpgp.Key{
			Entity: e, PublicKey: e.PrimaryKey, PrivateKey: e.PrivateKey,
			SelfSignature: self, Revocations: e.Revocations,
		})
	}
	if len(able) == 0 {
		return refuse("Add a signing subkey with `gpg --quick-add-key FINGERPRINT ed25519 sign`, and export the key again.",
			"no part of it may sign now")
	}
	text, err := write(e)
	if err != nil {
		return refuse("Make another key.", "it cannot be serialized (%w)", err)
	}
	return Key{
		ID:         id,
		Owner:      printable.Remove(user.Name, maxOwner),
		Algorithm:  name,
		CreatedAt:  e.PrimaryKey.CreationTime.UTC(),
		ExpiresAt:  earlier(end, last),
		ASCIIArmor: text,
	}, able, nil
}

// replace is the hint for a key that some clients cannot read.
const replace = "Make an Ed25519 or RSA 4096 key with `gpg --quick-generate-key`."

// algorithm returns the name of a signing key's algorithm. The named algorithms
// were tested with each release of the library that clients use. It returns an
// error for all others.
func algorithm(k *packet.PublicKey) (string, error) {
	curves := map[packet.Curve]string{
		packet.CurveNistP256:      "P-256",
		packet.CurveNistP384:      "P-384",
		packet.CurveNistP521:      "P-521",
		packet.CurveSecP256k1:     "secp256k1",
		packet.CurveBrainpoolP256: "brainpoolP256r1",
		packet.CurveBrainpoolP384: "brainpoolP384r1",
		packet.CurveBrainpoolP512: "brainpoolP512r1",
	}
	if k.Version != 4 {
		return "", fmt.Errorf("its version is %d, which some clients cannot read", k.Version)
	}
	switch k.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		// Use the modulus, because the library does not check the number of bits in
		// the packet.
		if public, ok := k.PublicKey.(*rsa.PublicKey); ok {
			name := fmt.Sprintf("RSA %d", public.N.BitLen())
			if public.N.BitLen() < minRSA {
				return "", fmt.Errorf("it is %s, and RSA keys need at least %d bits", name, minRSA)
			}
			return name, nil
		}
	case packet.PubKeyAlgoDSA:
		return "", errors.New("it is DSA, which is too weak")
	case packet.PubKeyAlgoEdDSA:
		if curve, err := k.Curve(); err == nil && curve == packet.Curve25519 {
			return "Ed25519", nil
		}
	case packet.PubKeyAlgoECDSA:
		if curve, err := k.Curve(); err == nil && curves[curve] != "" {
			return "ECDSA " + curves[curve], nil
		}
	}
	return "", fmt.Errorf("some clients cannot read its OpenPGP algorithm %d or its curve", k.PubKeyAlgo)
}

// FitsOldClients reports whether Terraform 1.5 and older can read a key. Their
// library supports RSA, and ECDSA on the curves P-256, P-384 and P-521. It
// rejects a key if any part has another algorithm.
//
// Source: https://pkg.go.dev/golang.org/x/crypto/openpgp.
func FitsOldClients(key Key) bool {
	e, err := readPublic([]byte(key.ASCIIArmor))
	if err != nil {
		return false
	}
	parts := []*packet.PublicKey{e.PrimaryKey}
	for _, s := range e.Subkeys {
		parts = append(parts, s.PublicKey)
	}
	return !slices.ContainsFunc(parts, func(k *packet.PublicKey) bool {
		switch k.PubKeyAlgo {
		case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
			return false
		case packet.PubKeyAlgoECDSA:
			curve, err := k.Curve()
			nist := []packet.Curve{packet.CurveNistP256, packet.CurveNistP384, packet.CurveNistP521}
			return err != nil || !slices.Contains(nist, curve)
		}
		return true
	})
}

// ends returns the time when a key or one of the signatures that bind it
// expires, or zero for never.
func ends(k *packet.PublicKey, binding *packet.Signature, also ...*packet.Signature) time.Time {
	var end time.Time
	if s := binding.KeyLifetimeSecs; s != nil && *s != 0 {
		end = k.CreationTime.Add(time.Duration(*s) * time.Second)
	}
	for _, sig := range append(also, binding) {
		if s := sig.SigLifetimeSecs; s != nil && *s != 0 {
			end = earlier(end, sig.CreationTime.Add(time.Duration(*s)*time.Second))
		}
	}
	return end.UTC()
}

// earlier returns the earlier of two times. Zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times. Zero means never. If first is set, it
// returns b.
func later(a, b time.Time, first bool) time.Time {
	if first || b.IsZero() || !a.IsZero() && b.After(a) {
		return b
	}
	return a
}

// write returns the armored public part of a trimmed key.
func write(e *openpgp.Entity) (string, error) {
	var packets bytes.Buffer
	if err := e.Serialize(&packets); err != nil {
		return "", err
	}
	// The library damages some encodings that it does not write itself, such as
	// long forms of lengths.
	again, err := read(packets.Bytes())
	if err != nil {
		return "", err
	}
	if len(again.Subkeys) != len(e.Subkeys) || !bytes.Equal(again.PrimaryKey.Fingerprint, e.PrimaryKey.Fingerprint) {
		return "", errors.New("the result is a different key")
	}
	var text strings.Builder
	// Include the optional checksum, because some readers of armor warn without it.
	out, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		return "", err
	}
	if _, err := out.Write(packets.Bytes()); err != nil {
		return "", err
	}
	if err := out.Close(); err != nil {
		return "", err
	}
	text.WriteString("\n")
	return text.String(), nil
}
