package regularfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Owner is the user who owns a file.
type Owner struct {
	UID int
	// GID is the group of the file.
	GID int
	// Name is empty if the user has none.
	Name string
}

// Me returns the user of this process. On Windows its UID is -1.
func Me() Owner { return ownerWith(os.Geteuid(), os.Getegid()) }

func ownerWith(uid, gid int) Owner {
	o := Owner{UID: uid, GID: gid}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		o.Name = u.Username
	}
	return o
}

// String returns the name, or the UID of a user without one.
func (o Owner) String() string {
	if o.Name == "" {
		return "uid " + strconv.Itoa(o.UID)
	}
	return o.Name
}

// DeniedError means that this process may not read or write a file of a
// registry. It wraps [fs.ErrPermission].
type DeniedError struct {
	// Path is the file or folder that denies it, below the registry's folder.
	Path string
	// Owner owns Path.
	Owner Owner
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("permission denied for %s, which belongs to %s", e.Path, e.Owner)
}

func (*DeniedError) Unwrap() error { return fs.ErrPermission }

// Denied returns a [DeniedError] with a hint if err is [fs.ErrPermission], and
// otherwise err. name is the path that caused err, below the folder dir. Denied
// finds out which part of it denied the permission.
func Denied(dir, name string, err error) error {
	_, done := errors.AsType[*DeniedError](err)
	if done || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	info, statErr := os.Stat(dir)
	if statErr != nil {
		return err
	}
	folder, ok := OwnerOf(info)
	if !ok {
		return err
	}
	denied := &DeniedError{".", folder}
	at := ""
	for part := range strings.SplitSeq(filepath.ToSlash(name), "/") {
		at = filepath.Join(at, part)
		below, err := os.Lstat(filepath.Join(dir, at))
		if err != nil {
			break
		}
		denied.Path = filepath.ToSlash(at)
		denied.Owner, _ = OwnerOf(below)
	}
	on := "` on the registry's folder"
	if errs.IsPlain(dir) {
		on = " " + dir + "`"
	}
	me := Me()
	switch {
	case folder.UID != me.UID && folder.UID != 0: // a folder of root can be for a group, as a volume of Kubernetes
		return errs.WithHint(denied, "Run the command as %s, the owner of the folder.", folder)
	case denied.Owner.UID == me.UID:
		return errs.WithHint(denied, "Run `chmod -R u+rwX%s.", on)
	}
	to := cmp.Or(me.Name, strconv.Itoa(me.UID))
	return errs.WithHint(denied, "Another user ran a command on the registry's folder. "+
		"Stop the server, run `sudo chown -R %s%s, and start the server.", to, on)
}
