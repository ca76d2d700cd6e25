package local

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/objects/disk"
)

// Status is the state of a server for monitoring.
type Status struct {
	// Ready reports whether the server can answer requests.
	Ready bool
	// Connections is the number of open connections, MaxConnections its limit.
	Connections, MaxConnections int
	// RejectedConnections counts the connections that were closed, and the requests
	// through proxies that were refused, because their client had too many.
	RejectedConnections int
	// CertificateExpires is the earliest expiry of the certificate and its
	// intermediate certificates. It is zero if the server has none, because a proxy
	// ends TLS.
	CertificateExpires time.Time
	// CertificateRenewals counts the certificates that replaced another, and
	// CertificateFailures those that could not.
	CertificateRenewals, CertificateFailures int64
	// AccessFileValid reports whether the file with the access settings can be
	// used, or there is none.
	AccessFileValid bool
	// DatabaseBytes is the size of the database with its log.
	DatabaseBytes int64
	// DiskFree is the free space in bytes for the database and for the objects.
	// Both can have the same disk. A disk that cannot be read is missing.
	DiskFree map[string]uint64
	// DiskSize is the size of these disks. Some file systems report 0.
	DiskSize map[string]uint64
	// ReserveBytes is the space that the registry reserves for withdrawing, and for
	// revoking tokens, on a full disk.
	ReserveBytes int64
	// LastBackup and LastVerify are the times of the files of these names. They
	// are zero if there was no backup or check.
	LastBackup, LastVerify time.Time
}

// Status returns the state of the server. It returns within about 2 seconds.
func (s *Server) Status(ctx context.Context) Status {
	status := Status{
		Ready:           s.Ready(ctx) == nil,
		AccessFileValid: s.access.isValid.Load(),
		DiskFree:        make(map[string]uint64),
		DiskSize:        make(map[string]uint64),
		ReserveBytes:    reserveBytes(s.dir),
		LastBackup:      LastBackup.In(s.dir),
		LastVerify:      LastVerify.In(s.dir),
	}
	if s.certificates != nil {
		status.CertificateExpires = s.certificateExpires()
		status.CertificateRenewals = s.certificates.renewals.Load()
		status.CertificateFailures = s.certificates.failures.Load()
	}
	status.Connections, status.MaxConnections, status.RejectedConnections = s.connections.counts()
	for _, name := range []string{database, database + "-wal"} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			status.DatabaseBytes += info.Size()
		}
	}
	for of, dir := range map[string]string{"database": s.dir, "objects": filepath.Join(s.dir, "objects")} {
		if free, size, err := disk.Space(dir); err == nil {
			status.DiskFree[of], status.DiskSize[of] = free, size
		}
	}
	return status
}

func (s *Server) certificateExpires() time.Time { return s.certificates.current.Load().expires }
