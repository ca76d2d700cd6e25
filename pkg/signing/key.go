package signing

import (
	"bytes"
	"cmp"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// Key is a public key that signs packages, as a namespace keeps it. Of its fields this package sets and reads those that
// are the key's own.
type Key = registry.SigningKey

const (
	armorBegin = "-----BEGIN "
	maxOwner   = 256 // bytes
	minRSA     = 2048
)

// ParseKey reads one public key that can sign at present. Errors are ErrInvalid.
func ParseKey(armored []byte, now time.Time) (Key, error) {
	e, err := readPublic(armored)
	if err != nil {
		return Key{}, err
	}
	key, _, err := describe(e, now)
	return key, err
}

// readPublic reads one armored public key, trimmed. What it may still do at present is not asked.
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
	if !bytes.HasPrefix(trimText(armored), []byte(armorBegin)) {
		return refuse(export, "it is not an armored OpenPGP key")
	}
	kind, packets, err := unarmor(armored)
	if err != nil {
		return refuse(export, "%w", err)
	}
	const private, exportPublic = "it is a private key, which must not leave its owner", "Export the public one with `gpg --armor --export`."
	if kind == openpgp.PrivateKeyType {
		return refuse(exportPublic, private)
	}
	if kind != openpgp.PublicKeyType {
		return refuse(export, "it is a %.40q", kind)
	}
	n, err := count(packets)
	switch {
	case err != nil:
		return refuse(export, "it cannot be read (%w)", err)
	case n[tagPrivateKey]+n[tagPrivateSubkey] > 0:
		return refuse(exportPublic, private)
	case n[tagPublicKey] > 1:
		return refuse("Export them one by one, with `gpg --armor --export KEYID`, and hand in each.",
			"there are %d keys in one block", n[tagPublicKey])
	}
	e, err := read(packets)
	if err != nil {
		return refuse(export, "it cannot be read (%w)", err)
	}
	return e, nil
}

// readPrivate reads one private key, armored or not, trimmed. It tells nothing of why it fails: that comes of the bytes.
func readPrivate(privateKey []byte) (*openpgp.Entity, error) {
	refuse := func(format string, args ...any) (*openpgp.Entity, error) {
		err := fmt.Errorf("%w private key: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
		return nil, registry.WithHint(err, "Export the one to sign with by `gpg --armor --export-secret-keys KEYID`.")
	}
	if len(privateKey) > maxKey {
		return refuse("it has more than %d bytes", maxKey)
	}
	packets := privateKey
	if bytes.HasPrefix(trimText(privateKey), []byte(armorBegin)) {
		var kind string
		var err error
		if kind, packets, err = unarmor(privateKey); err != nil || kind != openpgp.PrivateKeyType && kind != openpgp.PublicKeyType {
			return refuse("it is not one armored private key")
		}
	}
	n, err := count(packets)
	switch {
	case err != nil || len(packets) == 0:
		return refuse("it cannot be read")
	case n[tagPrivateKey] == 0:
		return refuse("it is a public one")
	case n[tagPrivateKey]+n[tagPublicKey] > 1:
		return refuse("there are several keys")
	}
	e, err := read(packets)
	if err != nil {
		return refuse("it cannot be read")
	}
	return e, nil
}

// trimText takes off what editors and shells put around a text.
func trimText(text []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
}

// unarmor returns the type and the bytes of the only armored block of a text that is nothing else.
func unarmor(text []byte) (kind string, packets []byte, err error) {
	text = trimText(text)
	if bytes.Count(text, []byte(armorBegin)) > 1 {
		return "", nil, errors.New("there are several armored blocks, of which clients read the first alone")
	}
	block, err := armor.Decode(bytes.NewReader(text))
	if err != nil {
		return "", nil, errors.New("its armor is damaged")
	}
	if !bytes.HasSuffix(text, []byte("\n-----END "+block.Type+"-----")) {
		return "", nil, errors.New("its armor is cut short, or something follows it")
	}
	packets, err = io.ReadAll(block.Body)
	if err != nil {
		return "", nil, errors.New("its armor is damaged")
	}
	return block.Type, packets, nil
}

// The types of the packets that keys consist of. Source: RFC 9580, section 5.
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

// count says how many packets there are of each type. Others than those of keys are an error: the library passes over some,
// and over keys of versions that it does not know.
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
		case tagSignature, tagPrivateKey, tagPublicKey, tagPrivateSubkey, tagTrust, tagUserID, tagPublicSubkey, tagUserAttribute:
			n[p.Tag]++
		default:
			return n, fmt.Errorf("there is a packet of type %d, which is no part of a key", p.Tag)
		}
	}
}

// read reads one key and trims it to what verifying takes.
//
// Subkeys that do not sign go: of the newest kinds of them, older clients fail to read the whole key. Signatures by others
// go, for they say who knows whom. Of several user ids the primary one stays: where none is marked, the library takes the
// newest, and of equally new ones, which changing the expiry makes of them all, the one that it comes upon first in a map.
func read(packets []byte) (*openpgp.Entity, error) {
	in := packet.NewReader(bytes.NewReader(packets))
	e, err := openpgp.ReadEntity(in)
	if err != nil {
		return nil, err
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something behind the key")
	}
	if e.PrimaryKey.Version != 4 {
		return nil, fmt.Errorf("it is of version %d, which not every client reads, and not of version 4", e.PrimaryKey.Version)
	}
	var ids []*openpgp.Identity
	for _, name := range slices.Sorted(maps.Keys(e.Identities)) {
		// The library panics over a signature by a key whose only user id has been revoked and never been signed.
		if id := e.Identities[name]; id.SelfSignature != nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("it has no user id that it has signed itself")
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

// marked is 1 if a user id is marked as the primary one.
func marked(id *openpgp.Identity) int {
	if primary := id.SelfSignature.IsPrimaryId; primary != nil && *primary {
		return 1
	}
	return 0
}

// describe says what a key is that can sign at present, and which of its parts can, in the order in which they are to be
// tried: the newest subkey first, as GnuPG does, the primary key last.
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
		return refuse("Add one with `gpg --quick-add-uid`, and export the key again.", "its user ids are revoked")
	case e.PrimaryKey.CreationTime.After(now) || self.CreationTime.After(now):
		return refuse("Set the clock of where it was made.", "it is dated %s, which is in the future", date(self.CreationTime))
	case e.PrimaryKey.KeyExpired(self, now) || self.SigExpired(now):
		return refuse("Extend it with `gpg --quick-set-expire`, and export it again.", "it has expired, at %s", date(end))
	}
	var able []openpgp.Key
	var last time.Time
	var strong []openpgp.Subkey
	for _, s := range e.Subkeys {
		fit := !s.Revoked(now) && !s.PublicKey.KeyExpired(s.Sig, now) && !s.Sig.SigExpired(now) && !s.Sig.EmbeddedSignature.SigExpired(now)
		if _, err := algorithm(s.PublicKey); err != nil {
			if fit {
				return refuse(replace, "its signing subkey %s: %w", keyID(s.PublicKey.KeyId), err)
			}
			continue
		}
		// One that has expired stays, for what it has signed: clients go on to take that.
		strong = append(strong, s)
		if fit {
			last = later(last, ends(s.PublicKey, s.Sig, s.Sig.EmbeddedSignature), len(able) == 0)
			able = append(able, openpgp.Key{Entity: e, PublicKey: s.PublicKey, PrivateKey: s.PrivateKey, SelfSignature: s.Sig, Revocations: s.Revocations})
		}
	}
	e.Subkeys = strong
	slices.SortStableFunc(able, func(a, b openpgp.Key) int {
		return b.SelfSignature.CreationTime.Compare(a.SelfSignature.CreationTime)
	})
	if self.FlagsValid && self.FlagSign {
		last = later(last, end, len(able) == 0)
		able = append(able, openpgp.Key{Entity: e, PublicKey: e.PrimaryKey, PrivateKey: e.PrivateKey, SelfSignature: self, Revocations: e.Revocations})
	}
	if len(able) == 0 {
		return refuse("Add a signing subkey with `gpg --quick-add-key FINGERPRINT ed25519 sign`, and export the key again.",
			"nothing in it may sign at present")
	}
	text, err := write(e)
	if err != nil {
		return refuse("Make another one.", "it cannot be written anew (%w)", err)
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

// replace is the hint for a key that not every client reads.
const replace = "Make one of Ed25519 or RSA 4096 (`gpg --quick-generate-key`)."

// algorithm names the algorithm of a key that signs. Those that it names were tried with each release of the library that
// clients have; others are an error.
func algorithm(k *packet.PublicKey) (string, error) {
	curves := map[packet.Curve]string{
		packet.CurveNistP256: "P-256", packet.CurveNistP384: "P-384", packet.CurveNistP521: "P-521", packet.CurveSecP256k1: "secp256k1",
		packet.CurveBrainpoolP256: "brainpoolP256r1", packet.CurveBrainpoolP384: "brainpoolP384r1", packet.CurveBrainpoolP512: "brainpoolP512r1",
	}
	if k.Version != 4 {
		return "", fmt.Errorf("it is of version %d, which not every client reads", k.Version)
	}
	switch k.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		// The modulus itself: how many bits the packet says it has is not checked by the library.
		if public, ok := k.PublicKey.(*rsa.PublicKey); ok {
			name := fmt.Sprintf("RSA %d", public.N.BitLen())
			if public.N.BitLen() < minRSA {
				return "", fmt.Errorf("it is %s, and fewer than %d bits are too weak", name, minRSA)
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
	return "", fmt.Errorf("it is of algorithm %d of OpenPGP, or of a curve, that not every client reads", k.PubKeyAlgo)
}

// FitsOldClients reports whether Terraform 1.5 and older can read a key. Their
// library knows RSA and ECDSA on the curves P-256, P-384 and P-521, and refuses a
// key of which any part is of another kind.
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

// ends says when a key or one of the signatures that bind it expires; zero means never.
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

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times, of which zero means never; b if it is the first.
func later(a, b time.Time, first bool) time.Time {
	if first || b.IsZero() || !a.IsZero() && b.After(a) {
		return b
	}
	return a
}

// write renders the public part of a trimmed key.
func write(e *openpgp.Entity) (string, error) {
	var packets bytes.Buffer
	if err := e.Serialize(&packets); err != nil {
		return "", err
	}
	// What was written in a way that the library does not write comes out damaged: long forms of lengths, for example.
	again, err := read(packets.Bytes())
	if err != nil {
		return "", err
	}
	if len(again.Subkeys) != len(e.Subkeys) || !bytes.Equal(again.PrimaryKey.Fingerprint, e.PrimaryKey.Fingerprint) {
		return "", errors.New("it reads as another key")
	}
	var text strings.Builder
	// With the checksum, which is optional: some readers of armor warn if it is not there.
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
