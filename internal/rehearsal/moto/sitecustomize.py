# Python imports this file when moto_server starts. It lets moto update a managed
# policy and a log group, as CloudFormation does. Without it, moto loses a policy that
# changes, and rejects an update of a log group.
# It also gives functions the architecture and the storage of their template,
# which moto ignores, and tables their key. It lets moto delete a stack whose bucket
# is deleted already, since AWS retains the bucket. It stores the policies that a
# template gives a role as JSON, as the API returns them.
import json

try:
    from moto.awslambda.models import LambdaFunction
    from moto.dynamodb.models.table import RestoredTable, Table
    from moto.iam.models import ManagedPolicy, Role, iam_backends
    from moto.logs.models import LogGroup
    from moto.s3.exceptions import MissingBucket
    from moto.s3.models import FakeBucket
    from moto.utilities.utils import get_partition
except ImportError:
    pass
else:

    def update(cls, original_resource, new_resource_name, cloudformation_json, account_id, region_name):
        document = json.dumps(cloudformation_json["Properties"]["PolicyDocument"])
        backend = iam_backends[account_id][get_partition(region_name)]
        backend.create_policy_version(original_resource.arn, document, "true")
        return original_resource

    ManagedPolicy.update_from_cloudformation_json = classmethod(update)

    def update_group(cls, original_resource, new_resource_name, cloudformation_json, account_id, region_name):
        properties = cloudformation_json["Properties"]
        original_resource.retention_in_days = properties.get("RetentionInDays")
        original_resource.kms_key_id = properties.get("KmsKeyId")
        return original_resource

    LogGroup.update_from_cloudformation_json = classmethod(update_group)

    create = LambdaFunction.create_from_cloudformation_json

    def create_function(cls, resource_name, cloudformation_json, *args, **kwargs):
        function = create(resource_name, cloudformation_json, *args, **kwargs)
        properties = cloudformation_json["Properties"]
        function.architectures = properties.get("Architectures", function.architectures)
        if "EphemeralStorage" in properties:
            function.ephemeral_storage = int(properties["EphemeralStorage"]["Size"])
        return function

    LambdaFunction.create_from_cloudformation_json = classmethod(create_function)

    create_table = Table.create_from_cloudformation_json

    def create_encrypted(cls, resource_name, cloudformation_json, *args, **kwargs):
        table = create_table(resource_name, cloudformation_json, *args, **kwargs)
        if table.sse_specification:
            table.sse_specification["Enabled"] = table.sse_specification["SSEEnabled"]
        return table

    Table.create_from_cloudformation_json = classmethod(create_encrypted)

    restore = RestoredTable.__init__

    def restore_encrypted(self, name, account_id, region, backup):
        restore(self, name, account_id, region, backup)
        self.sse_specification = backup.table.sse_specification

    RestoredTable.__init__ = restore_encrypted

    delete = FakeBucket.delete_from_cloudformation_json

    def delete_bucket(cls, *args, **kwargs):
        try:
            delete(*args, **kwargs)
        except MissingBucket:
            pass

    FakeBucket.delete_from_cloudformation_json = classmethod(delete_bucket)

    put_policy = Role.put_policy

    def put_policy_as_json(self, name, document):
        if not isinstance(document, str):
            document = json.dumps(document, default=str)
        put_policy(self, name, document)

    Role.put_policy = put_policy_as_json
