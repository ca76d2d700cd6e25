package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Remove permanently removes all objects below a prefix: each version of each
// object, and each delete marker. It sends one request for each, so that errors
// name the object.
//
// It returns the number of removed versions and markers, even if it fails. It
// returns nil if there are none, and registry.ErrForbidden if a permission is
// missing.
//
// In a bucket without versions, an object is its own version null. The
// permissions are therefore always s3:ListBucketVersions and
// s3:DeleteObjectVersion.
func (s *Store) Remove(ctx context.Context, prefix string) (removed int, err error) {
	if err := objects.CheckFolder(prefix); err != nil {
		return 0, err
	}
	// An object without versions may be stored again during the removal, so count
	// the deletions.
	deleted := make(map[version]int)
	for {
		// Request the first page each time, because continuation markers may refer to
		// deleted objects.
		page, err := s.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &prefix})
		if err != nil {
			return removed, s.explain(prefix, "s3:ListBucketVersions", err)
		}
		found := versionsOf(page)
		if len(found) == 0 {
			return removed, nil
		}
		for _, v := range found {
			_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &v.key, VersionId: &v.id})
			if err != nil {
				err = s.explain(v.key, "s3:DeleteObjectVersion", err)
			}
			switch {
			case errors.Is(err, registry.ErrNotFound): // another client removed it
			case err != nil:
				return removed, err
			default:
				removed++
			}
			if deleted[v]++; deleted[v] > 3 {
				return removed, fmt.Errorf("bucket %s: object %s, version %s, was deleted but still exists",
					s.bucket, v.key, v.id)
			}
		}
	}
}

// version identifies a version of an object, or a delete marker.
type version struct{ key, id string }

func versionsOf(page *s3.ListObjectVersionsOutput) (all []version) {
	for _, v := range page.Versions {
		all = append(all, version{aws.ToString(v.Key), aws.ToString(v.VersionId)})
	}
	for _, m := range page.DeleteMarkers {
		all = append(all, version{aws.ToString(m.Key), aws.ToString(m.VersionId)})
	}
	return all
}

// explain translates an error, and names the permission if it is missing.
func (s *Store) explain(key, permission string, err error) error {
	if c := code(err); c == "AccessDenied" || c == "Forbidden" {
		return fmt.Errorf("bucket %s: object %s: %w: the permission %s is missing: %w",
			s.bucket, key, registry.ErrForbidden, permission, err)
	}
	return s.translate(key, err)
}
